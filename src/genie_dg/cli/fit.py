"""Make a model from a folder of pictures: candidates are tried on domains left out, the best is kept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import MANY, path_text, some_text, whole
from genie_dg.bench.options import add_flags
from genie_dg.check import InputError, one_of

from ._shared import PRETRAINED, QUICK, console_of, require, usual_size, write

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.engines.engine import Tell, Update
    from genie_dg.bench.fit import Fit
    from genie_dg.bench.options import Job
    from genie_dg.results.candidates import Candidate, Forecast


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is tried, how it is chosen, how much work that is."""
    parser.add_argument(
        "data", type=path_text, help="a folder <domain>/<class>/<picture>, a list, a table, or a set's name"
    )
    parser.add_argument(
        "-o", "--out", type=path_text, default="fit", metavar="FOLDER", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--candidate",
        action="append",
        default=[],
        type=some_text,
        metavar="OPTIMIZER:lr=NUMBER",
        help="an optimizer with settings to try; may be given several times "
        "(default: adam:lr=0.0005, genie:lr=0.0015 and genie:scale_free=true)",
    )
    parser.add_argument(
        "--choose",
        default="leave-one-domain-out",
        type=some_text,
        help="leave-one-domain-out: by accuracy on domains left out; held-back: on held-back pictures of those "
        "trained on (default: %(default)s)",
    )
    parser.add_argument("--algorithm", default="ERM", type=some_text, help="(default: %(default)s)")
    parser.add_argument(
        "--backbone",
        type=some_text,
        help=f"(default: {PRETRAINED} with ImageNet weights for pictures, mlp for tables, cnn for others)",
    )
    parser.add_argument(
        "--image-size", type=whole(1), default=0, help=f"pixels (default: what suits, on a CPU at most {QUICK})"
    )
    parser.add_argument("--steps", type=whole(1), default=120, help="(default: %(default)s)")
    parser.add_argument(
        "--every", type=whole(1), default=30, help="steps between evaluations (default: %(default)s)"
    )
    parser.add_argument("--batch-size", type=whole(1), default=8, help="of each domain (default: %(default)s)")
    parser.add_argument(
        "--trial", type=whole(0), default=0, help="seed of splits, weights, batches (%(default)s)"
    )
    parser.add_argument(
        "--workers", type=whole(1, MANY), default=0, help="runs at a time (default: one for each core)"
    )
    parser.add_argument("--root", type=path_text, metavar="FOLDER", help="where published sets are")
    parser.add_argument("--device", type=some_text, help="cpu, cuda or mps (default: cuda if there is one)")
    parser.add_argument("--quiet", action="store_true", help="print the result alone")
    add_flags(parser, "fit")


def run(arguments: argparse.Namespace) -> int:
    """Try, choose, train on all domains, say what to expect."""
    packages = {"numpy": "numpy", "PIL": "pillow", "rich": "rich", "polars": "polars", "jinja2": "jinja2"}
    require("Fitting", "bench", packages)
    from genie_dg.bench.engines.launch import launch
    from genie_dg.bench.engines.local import default_workers
    from genie_dg.results.candidates import RULES, candidates_of, choose, forecast
    from genie_dg.results.frame import load

    one_of("--choose", arguments.choose, RULES)
    console = console_of(arguments.quiet)
    planned = plan_of(arguments)
    console.print(describe(planned), markup=False)
    workers = arguments.workers or default_workers(arguments.device or "", 1)
    with _display(console, planned) as report:
        tried = launch(planned.jobs, workers=workers, device=arguments.device or "", report=report)
        _refuse_failures(tried.failed)
        frame = load(*(job.folder for job in planned.jobs))
        candidates = candidates_of(frame)
        best = choose(candidates, arguments.choose)
        expected = forecast(candidates, arguments.choose)
        final = planned.final(best.config)
        _refuse_failures(launch([final], device=arguments.device or "", report=report).failed)
    result = finish(planned, candidates, best, expected, final, arguments.choose)
    console_of().print("\n".join(result), markup=False)
    return 0


def plan_of(arguments: argparse.Namespace) -> Fit:
    """The request as runs."""
    from genie_dg.bench.fit import CANDIDATES, plan_fit
    from genie_dg.bench.options import RunOptions, columns_from
    from genie_dg.bench.request import check_here, full_names, usable_device
    from genie_dg.data.registry import open_data

    columns = columns_from(arguments)
    options = RunOptions(
        out=arguments.out,
        root=arguments.root or "",
        cache=str(Path(arguments.out) / "cache"),
        device=arguments.device or "",
        domain_column=columns.domain,
        label_column=columns.label,
        image_column=columns.image,
        ignore_column=columns.ignored,
    )
    check_here(options)  # what is wrong whatever the data are is refused before they are opened
    algorithm, _, backbone = full_names(arguments.algorithm, "adam", arguments.backbone or PRETRAINED)
    data = open_data(arguments.data, arguments.root or None, options.columns)
    pictures = data.in_files
    in_memory = "mlp" if data.is_table else "cnn"
    size = arguments.image_size or usual_size(data, usable_device(options.device))
    return plan_fit(
        data,
        arguments.data,
        arguments.candidate or CANDIDATES,
        options,
        algorithm=algorithm,
        backbone=backbone if pictures or arguments.backbone else in_memory,
        pretrained=pictures and backbone == PRETRAINED,
        image_size=size,
        batch_size=arguments.batch_size,
        steps=arguments.steps,
        checkpoint_every=arguments.every,
        trial_seed=arguments.trial,
        fast=pictures,
    )


def describe(planned: Fit) -> str:
    """What is ahead, in a sentence."""
    first, data = planned.configs[0][0], planned.data
    names = ", ".join(domain.name for domain in data.domains)
    seen = f" at {first.image_size} pixels" if first.pretrained else ""
    return (
        f"{data.name}: {len(data)} samples of {len(data.classes)} classes in {len(data.domains)} domains "
        f"({names}). {len(planned.configs)} candidates, {first.backbone}{seen}, {first.steps} steps each, "
        f"without each domain in turn, then the best one on all domains; in {planned.options.out}"
    )


def finish(
    planned: Fit, candidates: list[Candidate], best: Candidate, expected: Forecast, final: Job, rule: str
) -> list[str]:
    """Write the model, the numbers and the page; what to say at the end."""
    from genie_dg.report.fit import fit_page, numbers_of
    from genie_dg.runs.folder import MODEL

    out = Path(planned.options.out)
    names = [domain.name for domain in planned.data.domains]
    numbers = numbers_of(planned.data.name, names, candidates, best, expected, rule)
    write(out / "model.pt", (final.folder / MODEL).read_bytes())
    write(out / "fit.json", (json.dumps(numbers, indent=1) + "\n").encode("utf-8"))
    write(out / "fit.html", fit_page(numbers).encode("utf-8"))
    return [
        numbers["sentence"],
        f"The model is {out / 'model.pt'}, the page {out / 'fit.html'}. Next: "
        f"genie-dg predict {out / 'model.pt'} {'TABLE' if planned.data.is_table else 'PICTURES'}",
    ]


def _refuse_failures(failed: dict[str, str]) -> None:
    for run_id, reason in failed.items():
        raise InputError(
            f"The run {run_id} failed ({reason.rstrip('.')}); mend it and start the same command again."
        )


@contextmanager
def _display(console: Console, planned: Fit) -> Iterator[Tell]:
    """One bar over all steps, the last training included, and a line for each run that ends."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from genie_dg.results.candidates import name_of
    from genie_dg.runs.config import canonical

    configs = {job.config.run_id: job.config for job in planned.jobs}
    behind = {job.config.run_id: job.config.steps if job.done else 0 for job in planned.jobs}
    steps = planned.configs[0][0].steps
    left = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    columns: tuple[Any, ...] = (*left, TimeRemainingColumn())
    names = [domain.name for domain in planned.data.domains]
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("trying", total=steps * (len(configs) + 1), completed=sum(behind.values()))

        def report(update: Update) -> None:
            behind[update.run] = max(behind.get(update.run, 0), update.steps)
            config = configs.get(update.run)
            what = "training on all domains" if config is None else "trying"
            progress.update(task, completed=sum(behind.values()), description=what)
            if update.headline:
                about = "the winner, on all domains"
                if config is not None:
                    about = f"{name_of(canonical(config))} without {names[config.test_domains[0]]}"
                why = f": {update.reason}" if update.reason else ""
                console.print(f"{update.headline:6} {about}{why}", markup=False)

        yield report
