"""Write the CSV files of this folder from a clone of the authors' repository, github.com/00ssum/GENIE.

``python paper/logged/extract_logs.py CLONE`` makes them anew, and ``git diff`` says what changed;
``source.csv`` names the commit. The repository has a folder for each run under ``train_output``, with what the
training script printed in ``log.txt``: the arguments, the hyper-parameters, then a line for each evaluation.
Long runs have TensorBoard's event files beside it, some a file of sharpness. Only numbers and names are taken.
"""

from __future__ import annotations

import csv
import io
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import mean, median
from typing import Any

# In the order of the logs' indices, called as in the paper's tables.
DOMAINS = {
    "PACS": ["Art", "Cartoon", "Photo", "Sketch"], "VLCS": ["Caltech", "LabelMe", "SUN", "VOC"],
    "OfficeHome": ["Art", "Clipart", "Product", "Real-World"], "TerraIncognita": ["L100", "L38", "L43", "L46"],
    "DomainNet": ["Clip", "Info", "Paint", "Quick", "Real", "Sketch"],
}  # fmt: skip
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "genie": "GENIE", "sign_genie": "signed GENIE", "signum": "Signum"}
# What the authors' class for GENIE uses where a log does not print it.
GENIE_DEFAULTS = {"convergence_rate": 0.015, "moving_avg": 0.95, "p": 0.4}
# Their classes for the ablation. Its last row, with all three parts, was run with the same draws.
VARIANTS = {"GENIE_p": "precondition", "GENIE_Noise": "precondition+noise", "GENIE_Mask": "precondition+mask"}
LEVELS = (5000, 10000, 15000)  # steps at which the paper's table of times reads a run of 15,001 steps
WINDOW = 200  # steps that the paper's figure of the OSGR averages over

Row = dict[str, Any]


def read_log(text: str, folder: str) -> tuple[Row, list[Row]]:
    """The settings of a run and its evaluations, from its ``log.txt``; ``folder`` is below ``train_output``.

    The domain is the one left out, or the only source. The algorithm is the objective: the authors' classes for
    GENIE and SAM are ERM. The step size of GENIE is what their code calls convergence rate.
    """
    given = dict(re.findall(r"^\t(\w+): (.*)$", text, re.MULTILINE))
    dataset, kind = given["dataset"], given["algorithm"]
    left_out = [int(index) for index in re.findall(r"\d+", given["test_envs"])]
    sources = [name for index, name in enumerate(DOMAINS[dataset]) if index not in left_out]
    domain = sources[0] if len(sources) == 1 else DOMAINS[dataset][left_out[0]]
    batches = [int(n) for sizes in re.findall(r"Batch sizes .*?\[(.*?)\]", text) for n in sizes.split(",")]
    own = kind.startswith(("SAM", "GENIE"))
    optimizer = kind.partition("_")[0] if own else OPTIMIZERS[given["optimizer"].lower()]
    variant, lr, beta, p = VARIANTS.get(kind, ""), float(given["lr"]), math.nan, math.nan
    if "GENIE" in optimizer:
        lr, beta, p = (float(given.get(name, default)) for name, default in GENIE_DEFAULTS.items())
    p = 0.0 if kind in ("GENIE_p", "GENIE_Noise") else p
    # A folder that ends with _ma099 has beta 0.99.
    for name, digits in re.findall(r"_(ma|p)0(\d*)$", folder) if kind.startswith("GENIE_hp") else ():
        value = float(f"0.{digits}")
        beta, p, variant = (value, p, f"beta={value}") if name == "ma" else (beta, value, f"p={value}")
    # The first run stopped before its steps were printed.
    steps = int("".join(re.findall(r"=> (\d+) for checkpointing", text)) or 15001)
    evaluations = read_evaluations(text)
    return {
        "folder": folder, "dataset": dataset, "domain": domain, "one_source": int(len(sources) == 1),
        "network": given["model"], "algorithm": "ERM" if own or kind == "ERM_visual" else kind,
        "optimizer": optimizer, "variant": variant, "trial": int(given["trial_seed"]),
        "draw": int(given["hparams_seed"]), "batch": max(batches, default=0), "pictures": sum(batches),
        "lr": lr, "beta": beta, "p": p, "dropout": float(given["resnet_dropout"]), "steps": steps,
        "finished": int(steps - 1 in [one["step"] for one in evaluations]),
    }, evaluations  # fmt: skip


def read_evaluations(text: str) -> list[Row]:
    """The lines of numbers under the head that starts with ``test_in``, with the time of each."""
    head = " ".join(re.findall(r"\| (test_in .*)", text)[:1]).split()
    lines = re.findall(r"(\d\d/\d\d \S+) \| (\d\.\d+ .*)", text)
    return [{"time": time, **dict(zip(head, map(float, line.split()), strict=True))} for time, line in lines]


def results(evaluations: list[Row], until: int) -> Row:
    """What the evaluations up to a step say, in percent and seconds; there are at least two.

    ``selected`` is of the first evaluation of the highest validation accuracy, ``oracle`` of the highest
    accuracy on held-back pictures of the test domain. The oracle and ``last`` need all evaluations.
    """
    read = [one for one in evaluations if one["step"] <= until]
    selected, oracle = (max(read, key=itemgetter(name)) for name in ("train_out", "test_out"))
    # The logs have no year; all runs are of 2025.
    start, end = (datetime.strptime(f"2025/{one['time']}", "%Y/%m/%d %H:%M:%S") for one in (read[0], read[-1]))
    whole = 100 if len(read) == len(evaluations) else math.nan
    return {
        "selected_step": selected["step"], "validation": 100 * selected["train_out"],
        "selected": 100 * selected["test_in"], "oracle": whole * oracle["test_in"],
        "last": whole * read[-1]["test_in"],
        "step_seconds": mean(one["step_time"] for one in read[1:]),  # the first step loads the data
        "evaluation_seconds": mean(one["eval_time"] for one in read),
        "seconds": (end - start).total_seconds(),
    }  # fmt: skip


def places(run: Row) -> Iterator[tuple[str, str, int]]:
    """Experiment, row and last step of each number that a run is behind; "other" is in no table."""
    optimizer, variant, steps = run["optimizer"], run["variant"], run["steps"]
    inside = f"{run['algorithm']}+{optimizer}"
    drawn = "defaults" if run["trial"] == run["draw"] == 0 else "drawn"
    if steps > LEVELS[-1] and run["dataset"] != "DomainNet":
        yield from (("iterations", f"{optimizer}@{level}", level) for level in LEVELS)
        if drawn == "defaults":  # the first third is a run of the other tables' length
            yield "optimizers", f"{optimizer}, defaults", LEVELS[0]
        elif run["dataset"] == "PACS":
            yield "ablation", "precondition+noise+mask", LEVELS[0]
    elif run["network"] != "resnet50" or optimizer in ("signed GENIE", "Signum"):
        domains = "one source" if run["one_source"] else "one left out"
        yield "other", f"{inside}, {run['network']}, {drawn}, {domains}", steps
    elif variant:
        yield ("sensitivity", f"GENIE {variant}", steps) if "=" in variant else ("ablation", variant, steps)
    elif run["one_source"] or run["algorithm"] != "ERM":
        yield "single-source" if run["one_source"] else "integration", inside, steps
    else:
        yield "optimizers", f"{optimizer}, defaults" if drawn == "defaults" else optimizer, steps


def grouped(rows: list[Row], *names: str) -> list[list[Row]]:
    """Rows with the same values of some names together, in the order of these values."""
    values = itemgetter(*names)
    return [list(group) for _, group in groupby(sorted(rows, key=values), values)]


def averages(cells: list[Row]) -> Iterator[Row]:
    """The lines of ``averages.csv``; a row of a table has an "Avg" where it has every domain."""
    for row in grouped(cells, "experiment", "dataset", "row"):
        domains = [average(domain) for domain in grouped(row, "column")]
        yield from domains
        if len(domains) == len(DOMAINS[row[0]["dataset"]]):
            yield {**line_of(domains), "column": "Avg"}


def average(cells: list[Row]) -> Row:
    """The mean over trials, of each the draw of the highest validation accuracy, with its repeats."""
    best = [max(trial, key=itemgetter("validation")) for trial in grouped(cells, "trial")]
    chosen = {one["trial"]: one["draw"] for one in best}
    counts = {"runs": 1, "trials": len(chosen), "draws": len(grouped(cells, "trial", "draw"))}
    return line_of([{**cell, **counts} for cell in cells if cell["draw"] == chosen[cell["trial"]]])


def line_of(cells: list[Row]) -> Row:
    """A line of ``averages.csv`` from the runs that were chosen, or from other lines."""
    line = {name: cells[0][name] for name in ("experiment", "dataset", "row", "column")}
    line |= {name: mean(cell[name] for cell in cells) for name in ("value", "oracle", "last")}
    line["runs"] = sum(cell["runs"] for cell in cells)
    line |= {name: max(cell[name] for cell in cells) for name in ("trials", "draws")}
    for name in ("batch", "lr"):
        line[name] = " ".join(sorted(set(" ".join(cell[name] for cell in cells).split()), key=float))
    return line | {name: mean(cell[name] for cell in cells) for name in ("seconds", "step_seconds")}


def osgr_lines(run: Row, folder: Path) -> Iterator[Row]:
    """What a long run logged as OSGR, and the size of its gradients.

    A line is of `WINDOW` steps: the mean of what was logged, and the median of the root mean square over the
    parameters of one step's gradient.
    """
    from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-untyped]

    events = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    scalars = {tag.rpartition("/")[2]: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    for start in range(0, len(scalars["OSGR"]) - WINDOW + 1, WINDOW):
        osgr, gsnr = (scalars[name][start : start + WINDOW] for name in ("OSGR", "GSNR"))
        line = {name: run[name] for name in ("dataset", "domain", "optimizer", "batch", "pictures")}
        line |= {"step": mean(one.step for one in osgr), "osgr": mean(one.value for one in osgr)}
        size = median(gradient_size(o.value, q.value, run["pictures"]) for o, q in zip(osgr, gsnr, strict=True))
        yield {**line, "gradient": f"{size:.3g}"}


def gradient_size(osgr: float, gsnr: float, n: int) -> float:
    r"""The root mean square of a gradient's entries, from what the authors log about it.

    With the mean square :math:`s = v + m^2` of :math:`d \gg 1` entries, variance :math:`v` and mean
    :math:`m`, they log :math:`o = 1 - v / (n s + 10^{-7})` and :math:`q = m^2 / (v + 10^{-7})`, so
    :math:`v = 10^{-7} (1 + n q) / (1 / (1 - o) - n (1 + q))`. Infinite where the difference below is lost in
    the digits of a float32, which is so for gradients above about 0.01.

    Args:
        osgr: o.
        gsnr: q.
        n: pictures in the step.

    Example:
        >>> v, m, n = 3e-8, 1e-6, 96
        >>> osgr, gsnr = 1 - v / (n * (v + m * m) + 1e-7), m * m / (v + 1e-7)
        >>> round(gradient_size(osgr, gsnr, n) ** 2 / (v + m * m), 6)
        1.0
    """
    difference = 1 / (1 - osgr) - n * (1 + gsnr)
    # In float32, numbers near 1 are 6e-8 apart.
    variance = 1e-7 * (1 + n * gsnr) / difference if difference > n * n * 1e-7 else math.inf
    return math.sqrt(variance * (1 + gsnr) + gsnr * 1e-7)


def sharpness_lines(run: Row, folder: Path) -> list[Row]:
    """The rise of the loss on one batch of the domain left out, by radius of the input's perturbation."""
    path = folder / "sharpness_progress" / "sharpness_over_time.csv"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    # The start of a run distinguishes repeats.
    settings = {name: run[name] for name in ("dataset", "domain", "optimizer")} | {"started": folder.name[:15]}
    columns = ("step", *(f"rho=0.0{radius}" for radius in range(1, 6)))
    numbers = [[f"{float(number):.5g}" for number in line.split(",")] for line in lines]
    return [{**settings, **dict(zip(columns, row, strict=True))} for row in numbers]


def csv_text(rows: list[Row]) -> str:
    """Rows as CSV: floats have seven digits, as in the logs; what is missing or not finite is empty."""
    file, columns = io.StringIO(), dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(file, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: f"{v:.7g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return re.sub(r"(?<=,)(nan|inf)(?=[,\n])", "", file.getvalue())


def extract(clone: Path) -> dict[str, str]:
    """By name, the text of each file that a clone gives."""
    root = clone / "train_output"
    tables: dict[str, list[Row]] = {"runs": [], "osgr": [], "sharpness": []}
    cells = []
    for path in sorted(root.rglob("log.txt")):
        run, evaluations = read_log(path.read_text(encoding="utf-8"), path.parent.relative_to(root).as_posix())
        tables["runs"].append(run | (results(evaluations, run["steps"]) if len(evaluations) > 1 else {}))
        tables["sharpness"] += sharpness_lines(run, path.parent)
        if run["dataset"] == "VLCS" and run["steps"] > LEVELS[-1]:  # the runs of the paper's figure
            tables["osgr"] += osgr_lines(run, path.parent)
        for experiment, row, until in places(run) if run["finished"] else ():
            cell = {**run, **results(evaluations, until), "experiment": experiment, "row": row}
            cell |= {"column": run["domain"], "value": cell["selected"]}
            cells.append({**cell, "batch": str(run["batch"]), "lr": f"{run['lr']:.4g}"})
    commit = subprocess.check_output(["git", "-C", str(clone), "rev-parse", "HEAD"], text=True).strip()
    counts = {"logs": len(tables["runs"]), "finished": sum(run["finished"] for run in tables["runs"])}
    tables["source"] = [{"repository": "00ssum/GENIE", "commit": commit, **counts}]
    tables["averages"] = list(averages(cells))
    return {f"{name}.csv": csv_text(rows) for name, rows in tables.items()}


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "train_output").is_dir():
        sys.exit("Give a clone of github.com/00ssum/GENIE: a folder that has train_output.")
    for name, text in extract(Path(sys.argv[1])).items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8", newline="\n")
