"""Make a model from a folder of pictures: candidates are tried on domains left out, the best is kept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import MANY, add_fields, path_text, some_text, typed_fields, whole
from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import InputError, one_of

from ._shared import PRETRAINED, console_of, progress_bar, usual_size, write

if TYPE_CHECKING:
    from rich.console import Console

    from genie_dg.bench.engines.engine import Tell, Update
    from genie_dg.bench.fit import Fit
    from genie_dg.bench.options import Job
    from genie_dg.results.forecast import Contender, Forecast


_DEFAULTS: dict[str, Any] = {"steps": 120, "checkpoint_every": 30, "batch_size": 8}
"""Of fields of a run, where these differ from the field's own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is tried, how it is chosen, how much work that is."""
    from genie_dg.runs.config import RunConfig

    parser.add_argument(
        "data", type=path_text, help="a folder <domain>/<class>/<picture>, a list, a table, or a set's name"
    )
    parser.add_argument(
        "--candidate",
        action="append",
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
    add_fields(parser, RunConfig, "fit", **_DEFAULTS)
    parser.add_argument(
        "--workers", type=whole(1, MANY), default=0, help="runs at a time (default: one for each core)"
    )
    parser.add_argument("--quiet", action="store_true", help="print the result alone")
    add_flags(parser, "fit", out="fit")


def run(arguments: argparse.Namespace) -> int:
    """Try, choose, train on all domains, say what to expect."""
    from genie_dg.bench.engines.launch import launch
    from genie_dg.bench.engines.local import default_workers
    from genie_dg.results.forecast import CHOICE_RULES, choose_contender, contenders_of, forecast
    from genie_dg.results.frame import load

    one_of("--choose", arguments.choose, CHOICE_RULES)
    console = console_of(arguments.quiet)
    planned = _plan(arguments)
    console.print(_describe(planned), markup=False)
    device = planned.options.device
    workers = arguments.workers or default_workers(device, 1)
    with _display(console, planned) as report:
        tried = launch(planned.jobs, workers=workers, device=device, report=report)
        _refuse_failures(tried.failed)
        frame = load(*(job.folder for job in planned.jobs))
        candidates = contenders_of(frame)
        best = choose_contender(candidates, arguments.choose)
        expected = forecast(candidates, arguments.choose)
        final = planned.final(best.config)
        _refuse_failures(launch([final], device=device, report=report).failed)
    result = _finish(planned, candidates, best, expected, final, arguments.choose)
    console_of().print("\n".join(result), markup=False)
    return 0


def _plan(arguments: argparse.Namespace) -> Fit:
    """The request as runs."""
    from genie_dg.bench.fit import CANDIDATES, plan_fit
    from genie_dg.bench.request import check_here, full_names, usable_device
    from genie_dg.data.registry import open_data
    from genie_dg.runs.config import RunConfig

    options = options_from(arguments, out="fit")
    options = replace(options, cache=str(Path(options.out) / "cache"))
    check_here(options)  # what is wrong whatever the data are is refused before they are opened
    settings = {**_DEFAULTS, "algorithm": "ERM", "backbone": PRETRAINED, **typed_fields(arguments, RunConfig)}
    settings["algorithm"], _, backbone = full_names(settings["algorithm"], "adam", settings["backbone"])
    data = open_data(arguments.data, options.root or None, options.columns)
    if arguments.backbone is None and not data.in_files:
        backbone = "mlp" if data.is_table else "cnn"
    if arguments.image_size is None:
        settings["image_size"] = usual_size(data, usable_device(options.device))
    settings |= {"backbone": backbone, "pretrained": data.in_files and backbone == PRETRAINED}
    candidates = arguments.candidate or CANDIDATES
    return plan_fit(data, arguments.data, candidates, options, fast=data.in_files, **settings)


def _describe(planned: Fit) -> str:
    """What is ahead, in a sentence."""
    first, data = planned.configs[0][0], planned.data
    names = ", ".join(domain.name for domain in data.domains)
    seen = f" at {first.image_size} pixels" if first.pretrained else ""
    return (
        f"{data.name}: {len(data)} samples of {len(data.classes)} classes in {len(data.domains)} domains "
        f"({names}). {len(planned.configs)} candidates, {first.backbone}{seen}, {first.steps} steps each, "
        f"without each domain in turn, then the best one on all domains; in {planned.options.out}"
    )


def _finish(
    planned: Fit, candidates: list[Contender], best: Contender, expected: Forecast, final: Job, rule: str
) -> list[str]:
    """Write the model, the numbers and the page; what to say at the end."""
    from genie_dg.results.fit_page import fit_page, numbers_of
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
        raise InputError(f"The run {run_id} failed ({reason.rstrip('.')}); fix it and run the command again.")


@contextmanager
def _display(console: Console, planned: Fit) -> Iterator[Tell]:
    """One bar over all steps, the last training included, and a line for each run that ends."""
    from genie_dg.results.forecast import contender_name

    configs = {job.config.run_id: job.config for job in planned.jobs}
    steps_done = {job.config.run_id: job.config.steps if job.done else 0 for job in planned.jobs}
    names = [domain.name for domain in planned.data.domains]
    total = planned.configs[0][0].steps * (len(configs) + 1)
    with progress_bar("trying", total, console, "steps") as bar:

        def report(update: Update) -> None:
            steps_done[update.run] = max(steps_done.get(update.run, 0), update.steps)
            config = configs.get(update.run)
            text = "training on all domains" if config is None else "trying"
            bar(done=sum(steps_done.values()), text=text)
            if update.headline:
                about = "the winner, on all domains"
                if config is not None:
                    about = f"{contender_name(config)} without {names[config.test_domains[0]]}"
                why = f": {update.reason}" if update.reason else ""
                console.print(f"{update.headline:6} {about}{why}", markup=False)

        yield report
