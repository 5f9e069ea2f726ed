"""Make the page of a study from its records: tables, pictures, verdict, from the repository alone.

    python -m studies.page studies/pacs

Reads ``runs.tar.xz``, ``protocol.toml``, ``sweep.toml`` and the text ``page.md.j2`` of the study, which fills
the blocks of ``study.md.j2``, and writes its ``README.md``, the pictures and numbers in ``figures/``, and the
verdict in the project's README. Every number of the page comes from here.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import jinja2
import polars as pl
from matplotlib.ticker import LogLocator, NullFormatter

from genie_dg.results.compare import Comparison, Comparisons, compare_all
from genie_dg.results.draws import Candidate
from genie_dg.results.figures import COLOURS, DASHES, new_figure
from genie_dg.results.frame import load
from genie_dg.results.page_data import watch_curves
from genie_dg.results.render import csv_text, markdown_table, percent, points, render
from genie_dg.results.select import METHODS
from genie_dg.results.tables import tables
from paper.study import WIDER, Study, chosen_draws, grouped_draws, read_study
from studies.sensitivity import Width, rate_of, width

HERE = Path(__file__).parent
BASELINES = ("adam", "msvag")
NAMES = {
    "adam": "Adam",
    "sgd": "SGD with momentum",
    "sam-sgd": "SAM around SGD",
    "sam-adam": "SAM around Adam",
    "msvag": "M-SVAG",
    "genie": "GENIE as published",
    "genie-precondition": "GENIE with preconditioning alone",
    "genie-scale-free": "GENIE with scale_free",
}
"""The rows in words."""
MEASURES = {"osgr": "OSGR, by the definition", "update_gini": "Gini coefficient of weight changes"}
"""What is drawn over training, and its axis."""
TIMES = "step_times.csv"
"""Written by ``benchmarks/train_step.py``."""
NEAR_END = 0.1
"""Decades: a rate nearer than this to the end of its range counts as at its end."""


def verdict(c: Comparison) -> str:
    """The ledger's rule: better or worse only where the interval excludes 0."""
    if c.interval is None:
        return "not measured"
    return "better" if c.interval.low > 0 else "worse" if c.interval.high < 0 else "undecided"


def difference_table(study: Study, found: Sequence[Comparison]) -> str:
    """Paired differences, one line a row."""
    lines = [
        [
            study.names[c.row],
            points(c.mean),
            "-" if c.interval is None else f"{points(c.interval.low)} to {points(c.interval.high)}",
            f"{c.wins}/{c.ties}/{c.losses}",
            verdict(c),
        ]
        for c in found
    ]
    heads = ["row", "difference", "95 % interval", "splits better/equal/worse", "verdict"]
    return markdown_table(heads, lines)


def accuracies(frame: pl.DataFrame, method: str) -> str:
    """The table by domain, without times: the runs were made beside other work and with pauses."""
    shown = [table for table in tables(frame, method) if table.kind == "domains"]
    return render([replace(t, lines=tuple(replace(line, pace=None) for line in t.lines)) for t in shown])


def at_ends(study: Study, chosen: Mapping[str, Sequence[Candidate]]) -> list[str]:
    """A sentence for each row of which a chosen rate lies at the end of its range."""
    told = []
    for row, runs in chosen.items():
        count = ends(runs, study.ranges[row.partition(" + ")[2]])
        if count:
            told.append(f"{study.names[row]}: {count} of {len(runs)}")
    return told


def ends(runs: Sequence[Candidate], powers: tuple[float, float]) -> int:
    """How many runs have a rate at an end of its range."""
    rates = [math.log10(rate) for c in runs if (rate := rate_of(c)) is not None]
    return sum(x < powers[0] + NEAR_END or x > powers[1] - NEAR_END for x in rates)


def wider_table(study: Study) -> str:
    """By row whose range was widened its accuracy and its difference to Adam, without and with those draws.

    Only rows with all their runs, here and there; empty where there is none.
    """
    counts, base, lines = Counter(study.wider["row"]), f"ERM + {BASELINES[0]}", []
    for row in (row for row in study.complete if counts[row] == study.planned_wider and base in study.complete):
        own = study.frame.filter(pl.col("row").is_in([row, base]))
        for frame in (own, pl.concat([own, study.wider.filter(pl.col("row") == row)])):
            found = compare_all(frame, [row], base)
            (c,) = found.differences
            runs = [draws[-1] for draws in found.grouped[row].values()]
            name = study.names[row] + (WIDER if frame is not own else "")
            low, high = (10**power for power in study.ranges[name])
            said = summary(c)
            lines.append(
                [
                    study.names[row],
                    f"{low:.2g} to {high:.2g}",
                    str(len(found.best_of[row])),
                    percent(found.best_of[row][-1]),
                    f"{said['points']} ({said['interval']}: {said['verdict']})",
                    f"{ends(runs, study.ranges[name])} of {len(runs)}",
                ]
            )
    heads = [
        "row",
        "range of the rate",
        "draws",
        "accuracy",
        f"against Adam with {study.frame['draw'].n_unique()} draws",
        "chosen at an end",
    ]
    return markdown_table(heads, lines) if lines else ""


def inside_algorithms(second: Study | None) -> dict[str, object] | None:
    """Of a study's second sweep the table, and what each optimizer differs from Adam inside one algorithm.

    Algorithms of which all rows are complete; nothing where there is none.
    """
    if second is None:
        return None
    by_algorithm: dict[str, list[str]] = {}
    for row in second.names:
        by_algorithm.setdefault(row.partition(" + ")[0], []).append(row)
    whole = {a: rows for a, rows in by_algorithm.items() if set(rows) <= set(second.complete)}
    if not whole:
        return None
    own = second.frame.filter(pl.col("row").is_in([row for rows in whole.values() for row in rows]))
    found = [
        c for a, rows in whole.items() for c in compare_all(own, rows, f"{a} + {BASELINES[0]}").differences
    ]
    return {
        "table": accuracies(own, "training-domain"),
        "differences": difference_table(second, found),
        "learned": validation_table(second, [row for rows in whole.values() for row in rows]),
        "ends": at_ends(second, chosen_draws(second)),
        "draws": own["draw"].n_unique(),
    }


def validation_table(study: Study, rows: Sequence[str]) -> str:
    """Whether a row learned: validation of the default draw and of the chosen one, means over splits."""
    lines = []
    for row in rows:
        splits = list(grouped_draws(study)[row].values())
        first = [c.validation for draws in splits for c in draws if c.draw == 0]
        chosen = [draws[-1].validation for draws in splits]
        lines.append([study.names[row], *(percent(statistics.fmean(values)) for values in (first, chosen))])
    return markdown_table(["row", "validation of draw 0", "of the chosen draw"], lines)


def sensitivity_table(study: Study, widths: Mapping[str, Width]) -> str:
    """By row the width of its range within a point, and where the top lies."""

    def decades(value: float) -> str:
        return "no top" if math.isinf(value) else "-" if math.isnan(value) else f"{value:.2f}"

    lines = [
        [
            study.names[row],
            decades(w.decades),
            f"{decades(w.low)} to {decades(w.high)}",
            "-" if math.isnan(w.best) else f"{w.best:.1e}",
        ]
        for row, w in widths.items()
    ]
    return markdown_table(["row", "decades within a point", "95 % interval", "rate at the top"], lines)


def numbers_of(frame: pl.DataFrame, run: str) -> dict[str, dict[int, float]]:
    """What a run was watched for: by name the number of each step."""
    (watch,) = frame.filter(pl.col("run") == run)["watch"]
    return watch_curves(watch)


def balance_table(study: Study, chosen: Mapping[str, Sequence[Candidate]]) -> str:
    """How evenly the chosen runs moved their weights between records: the mean Gini coefficient by step."""
    lines, steps = [], set[int]()
    by_row: dict[str, dict[int, list[float]]] = {}
    for row, runs in chosen.items():
        for c in runs:
            for step, value in numbers_of(study.frame, c.run).get("update_gini", {}).items():
                if step:
                    by_row.setdefault(row, {}).setdefault(step, []).append(value)
                    steps.add(step)
    for row, values in by_row.items():
        means = [statistics.fmean(values[step]) if step in values else math.nan for step in sorted(steps)]
        lines.append([study.names[row], *(f"{mean:.3f}" for mean in means)])
    return markdown_table(["row", *(f"until step {step}" for step in sorted(steps))], lines) if lines else ""


def pace_table(study: Study, rows: Sequence[str]) -> str:
    """Median seconds of a step and its ratio to Adam's, from ``step_times.csv``; empty without that file.

    The runs' own times are not used: they were made beside other work and with pauses.
    """
    file = study.folder / TIMES
    if not file.is_file():
        return ""
    medians = dict(pl.read_csv(file).group_by("optimizer").agg(pl.col("seconds").median()).iter_rows())
    shown = [study.names[row] for row in rows if study.names[row] in medians]
    lines = [[name, f"{medians[name]:.3f}", f"{medians[name] / medians['adam']:.2f}"] for name in shown]
    return markdown_table(["row", "seconds a step", "over Adam's"], lines)


def budget_table(study: Study, best_of: Mapping[str, Sequence[float]]) -> str:
    """The expected accuracy of the best of k draws: for every k if there are few, else for some."""
    most = max(map(len, best_of.values()))
    shown = [k for k in range(1, most + 1) if most <= 6 or k in (1, 2, 3, 5, 10) or k == most]
    lines = [[study.names[row], *(percent(values[k - 1]) for k in shown)] for row, values in best_of.items()]
    return markdown_table(["row", *(f"k = {k}" for k in shown)], lines)


def draw_budgets(study: Study, best_of: Mapping[str, Sequence[float]]) -> None:
    """The expected accuracy of the best of k draws, as a picture with its numbers."""
    figure = new_figure(6.4, 4.0)
    ax = figure.subplots()
    for place, values in enumerate(best_of.values()):
        colour, dashes = COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS)]
        shown = [100 * v for v in values]
        ax.plot(range(1, len(values) + 1), shown, marker="o", color=colour, linestyle=dashes)
    low, high = ax.get_ylim()
    heights = apart([100 * values[-1] for values in best_of.values()], (high - low) / 22)
    for place, ((row, values), height) in enumerate(zip(best_of.items(), heights, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        ax.text(len(values) * 1.02, height, study.names[row], fontsize=8, va="center", color=colour)
    ax.set_xlabel("draws tried")
    ax.set_ylabel("accuracy on the domain left out (%)")
    most = max(map(len, best_of.values()))
    ax.set_xticks([k for k in range(1, most + 1) if most <= 10 or k == 1 or k % 5 == 0])
    ax.set_xlim(1 - most / 25, most * 1.28)
    ax.spines[["top", "right"]].set_visible(False)
    numbers = [[study.names[r], k, v] for r, values in best_of.items() for k, v in enumerate(values, 1)]
    save(study, figure, "budget", ["row", "k", "accuracy"], numbers)


def apart(heights: Sequence[float], least: float) -> list[float]:
    """Where labels go that want to be at these heights and need a distance: moved up from the lowest on.

    >>> apart([1.0, 3.0, 1.25], 0.5)
    [1.0, 3.0, 1.5]
    """
    placed = list(heights)
    order = sorted(range(len(placed)), key=lambda i: placed[i])
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + least)
    return placed


Curves = dict[str, dict[str, list[dict[int, float]]]]
"""By measure and row, for each domain left out, the values by step."""


def watched_curves(study: Study) -> Curves:
    """What was measured along the training of the chosen draws that were trained again."""
    curves: Curves = {name: {} for name in MEASURES}
    if not (study.folder / "chosen").is_dir():
        return curves
    again = load(study.folder / "chosen").filter(pl.col("done"))
    for row in (row for row in study.complete if row in set(again["row"])):
        for run in again.filter(pl.col("row") == row)["run"]:
            numbers = numbers_of(again, run)
            for name in MEASURES:
                values = {step: value for step, value in numbers.get(name, {}).items() if step}
                if values:
                    curves[name].setdefault(row, []).append(values)
    return curves


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, which is 0 for one value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.fmean(values), error


def watched_table(study: Study, curves: Curves) -> str:
    """By row the mean over training of each measure, and its standard error over the domains left out."""
    lines = []
    for row in curves["osgr"]:
        means = [[statistics.fmean(values.values()) for values in curves[name][row]] for name in MEASURES]
        shown = [mean_and_error(values) for values in means]
        lines.append([study.names[row], *(f"{mean:.3f} ± {error:.3f}" for mean, error in shown)])
    return markdown_table(["row", *MEASURES.values()], lines)


def draw_watched(study: Study, curves: Curves) -> int:
    """OSGR and balance over training, mean and standard error over the domains left out; at how many steps."""
    figure = new_figure(10.5, 3.6)
    numbers: list[list[object]] = []
    seen = set[int]()
    for ax, (name, words) in zip(
        figure.subplots(1, 2, gridspec_kw={"wspace": 0.28}), MEASURES.items(), strict=True
    ):
        for place, (row, runs) in enumerate(curves[name].items()):
            steps = sorted({step for values in runs for step in values})
            drawn = [mean_and_error([values[step] for values in runs if step in values]) for step in steps]
            colour, dashes = COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS)]
            means = [mean for mean, _ in drawn]
            ax.plot(steps, means, color=colour, linestyle=dashes, marker=".", label=study.names[row])
            low, high = [mean - error for mean, error in drawn], [mean + error for mean, error in drawn]
            ax.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
            numbers += [
                [name, study.names[row], step, *point] for step, point in zip(steps, drawn, strict=True)
            ]
            seen |= set(steps)
        ax.set_xlabel("step")
        ax.set_ylabel(words)
        ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(study, figure, "watched", ["measure", "row", "step", "mean", "standard_error"], numbers)
    return len(seen)


def draw_rates(study: Study, found: Comparisons, widths: Mapping[str, Width]) -> None:
    """Accuracy of every draw, less the mean of its split, against its learning rate, one panel a row."""
    rows = found.rows
    across = min(4, len(rows))
    down = -(-len(rows) // across)
    figure = new_figure(3.0 * across, 2.4 * down)
    axes = list(figure.subplots(down, across, squeeze=False, sharey=True, gridspec_kw={"hspace": 0.45}).flat)
    numbers: list[list[object]] = []
    for ax, row in zip(axes, rows, strict=False):
        for draws in found.grouped[row].values():
            mean = statistics.fmean(c.test for c in draws)
            known = [(rate, 100 * (c.test - mean)) for c in draws if (rate := rate_of(c)) is not None]
            numbers += [[study.names[row], rate, value] for rate, value in known]
            ax.plot(*zip(*known, strict=True), ".", color=COLOURS[0], alpha=0.6, markersize=4)
        if not math.isnan(widths[row].best):
            ax.axvline(widths[row].best, color=COLOURS[1], linewidth=1)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 3)))
        ax.xaxis.set_major_formatter(
            lambda rate, _: f"{rate:g}" if rate > 0.09 else f"{rate:.0e}".replace("e-0", "e-")
        )
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.tick_params(labelsize=8)
        ax.set_title(study.names[row], fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[len(rows) :]:
        ax.set_visible(False)
    figure.supxlabel("learning rate", fontsize=9, y=-0.03)
    figure.supylabel("points above the mean of the split", fontsize=9, x=0.07)
    save(study, figure, "rates", ["row", "lr", "points"], numbers)


def save(
    study: Study, figure: object, name: str, heads: Sequence[str], numbers: Sequence[Sequence[object]]
) -> None:
    """A picture and its numbers."""
    folder = study.folder / "figures"
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=140, metadata={"Software": None}, bbox_inches="tight")  # type: ignore[attr-defined]
    (folder / f"{name}.csv").write_text(csv_text(heads, numbers), encoding="utf-8")


def page_values(study: Study) -> dict[str, object]:
    """All that the text of the page may use."""
    rows = study.complete
    own = study.frame.filter(pl.col("row").is_in(rows))
    values: dict[str, object] = {
        "runs": len(study.frame),
        "planned": study.planned * len(study.names),
        "complete": [study.names[row] for row in rows],
        "partial": {study.names[row]: count for row, count in study.partial.items()},
        "per_row": study.planned,
        "name": study.folder.name,
    }
    if len(rows) < 2:
        return values
    found = compare_all(own, rows)
    chosen = chosen_draws(study)
    widths = {row: width(found.grouped[row]) for row in rows}
    against = {
        base: compare_all(own, rows, f"ERM + {base}").differences
        for base in BASELINES
        if f"ERM + {base}" in rows
    }
    low, high = study.ranges[study.names[rows[0]]]
    values |= {"trials": own["trial"].n_unique(), "decades": f"{high - low:.2g}"}
    draw_budgets(study, found.best_of)
    draw_rates(study, found, widths)
    values |= {
        "tables": {m: accuracies(own, m) for m in METHODS},
        "differences": {base: difference_table(study, cs) for base, cs in against.items()},
        "verdicts": {b: {study.names[c.row]: summary(c) for c in cs} for b, cs in against.items()},
        "best_of": budget_table(study, found.best_of),
        "widths": sensitivity_table(study, widths),
        "width_of": {study.names[row]: w.decades for row, w in widths.items()},
        "ends": at_ends(study, chosen),
        "diverged": [f"{study.names[row]}: {n} of {study.planned}" for row, n in study.diverged.items()],
        "wider": wider_table(study),
        "second": inside_algorithms(study.second),
        "balance": balance_table(study, chosen),
        "pace": pace_table(study, rows),
    }
    curves = watched_curves(study)
    values["watched"] = draw_watched(study, curves) if curves["osgr"] else 0
    values["watched_table"] = watched_table(study, curves)
    means = {study.names[row]: found.best_of[row][-1] for row in rows}
    values["verdict"] = three_sentences(means, values["verdicts"], tried(study))  # type: ignore[arg-type]
    return values


def summary(c: Comparison) -> dict[str, str]:
    """One difference in words for the text of a page."""
    if c.interval is None:
        return {"points": points(c.mean), "interval": "no interval", "verdict": verdict(c)}
    ends = f"{points(c.interval.low)} to {points(c.interval.high)}"
    return {"points": points(c.mean), "interval": ends, "verdict": verdict(c)}


def tried(study: Study) -> str:
    """What the advice is for."""
    how = "fine-tuning" if study.pretrained else "training from random weights"
    return f"for {how} on a few domains with {study.frame['draw'].n_unique()} tries of the settings"


ADVICE = {
    "better": "{top} is worth the change from Adam.",
    "worse": "stay with Adam and tune its learning rate.",
    "undecided": "keep Adam if its rate is tuned; {top} does as well as far as these runs can tell{other}.",
    "not measured": "nothing can be advised yet.",
}
"""What follows from the verdict on the best form of GENIE against Adam."""


def three_sentences(
    means: Mapping[str, float], verdicts: Mapping[str, Mapping[str, Mapping[str, str]]], tasks: str
) -> str:
    """What a practitioner should know, by the rule of the intervals alone.

    Args:
        means: by row its accuracy with all draws.
        verdicts: by baseline and row, from `summary`.
        tasks: what the advice is for, from `tried`.
    """
    best = max(means, key=lambda row: means[row])
    ours = {row: mean for row, mean in means.items() if row.startswith("genie")}
    if not ours or "adam" not in means:
        return f"The best of the finished rows is {NAMES.get(best, best)} ({percent(means[best])} %)."
    top = max(ours, key=lambda row: ours[row])
    first = verdicts["adam"].get("genie", verdicts["adam"][top])
    one, named = verdicts["adam"][top], "genie" if "genie" in ours else top
    others = [(base, rows[top]) for base, rows in verdicts.items() if base != "adam" and top in rows]
    beside = "".join(
        f"; against {NAMES.get(base, base)} {c['points']} ({c['interval']}: {c['verdict']})"
        for base, c in others
    )
    highest = f"; of all {len(means)} rows {NAMES.get(best, best)} is best ({percent(means[best])} %)"
    of_all = f", the highest of all {len(means)} rows" if best == top else ""
    of_ours = f"It is the best of GENIE's forms{of_all}{beside}{'' if of_all else highest}."
    others_of_ours = (
        f"Of GENIE's forms {NAMES.get(top, top)} is best ({percent(means[top])} %{of_all}): against Adam "
        f"{one['points']} ({one['interval']}: {one['verdict']}){beside}{'' if of_all else highest}."
    )
    alone = f"No other form of GENIE is finished yet{beside}{highest}."
    other = f", {NAMES['genie']} does not" if first["verdict"] == "worse" and named != top else ""
    sentences = [
        f"{NAMES.get(named, named)} reaches {percent(means[named])} % on the domain left out and tuned Adam "
        f"{percent(means['adam'])} %, a difference of {first['points']} points (95 % interval "
        f"{first['interval']}): {first['verdict']}.",
        alone if len(ours) == 1 else of_ours if top == named else others_of_ours,
        f"So {tasks}, {ADVICE[one['verdict']].format(top=NAMES.get(top, top), other=other)}",
    ]
    return "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))


def put_verdict(folder: Path, verdict: str) -> None:
    """Write the verdict between its marks in the project's README, where that has them."""
    readme = folder.parent.parent / "README.md"
    begin, end = f"<!-- verdict of {folder.name} -->\n", "<!-- end of verdict -->\n"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    before, _, rest = text.partition(begin)
    if rest:
        readme.write_text(f"{before}{begin}{verdict}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path, metavar="STUDY")
    for folder in parser.parse_args(argv).studies:
        study = read_study(folder)
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE), undefined=jinja2.StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, autoescape=False,
        )  # fmt: skip
        text = environment.from_string((folder / "page.md.j2").read_text(encoding="utf-8"))
        values = page_values(study)
        values.setdefault("verdict", f"Not decided yet: {values['runs']} of {values['planned']} runs are done.")
        put_verdict(folder, str(values["verdict"]))
        (folder / "README.md").write_text(text.render(values).rstrip() + "\n", encoding="utf-8")
        state = f"{values['runs']} of {values['planned']} runs"
        print(f"{folder / 'README.md'}: {state}, rows complete: {json.dumps(values['complete'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
