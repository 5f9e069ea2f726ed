"""No damage to any file gives a traceback, a wait without end, or a wrong number.

A file of runs, caches, lists or imports is damaged in one of the ways of `tests.damage`, and a command that
reads it runs in this process. What it prints must be what it prints without the damage, or what it prints
without the run that it then names.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from genie_dg.bench.assemble import assemble
from genie_dg.bench.jobs import run_typed
from genie_dg.bench.options import RunOptions
from genie_dg.cli.main import main
from genie_dg.data.registry import open_data
from genie_dg.files import append_line, read_whole
from genie_dg.results import frame as frames
from genie_dg.runs.config import from_mapping
from genie_dg.runs.outcome import OUTCOMES
from genie_dg.runs.seal import digest

from .corpus.domainbed import lines_of, write
from .corpus.replay import ENVIRONMENT, plain, read_page
from .damage import DAMAGES, restore, unlink_from_whole
from .data.pictures import folder as pictures

SWEEP = """
name = "small"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = ["adam", "sgd"]
test_domains = [["0 degrees"]]
trials = 1
hparams = 2
[overrides]
steps = 5
checkpoint_every = 2
backbone = "mlp"
batch_size = 4
"""
HAND = "--test-domain 0 --backbone mlp --steps 5 --every 2 --batch-size 4 --threads 1 --device cpu"
WATCHED = f"train digits {HAND} --optimizer adam --swad --watch updates --out"
CACHED = f"train set {HAND} --optimizer adam --image-size 16 --no-augment --cache cache --out"
COMMANDS = {
    "table": ["table", "runs", "--mix-protocols"],
    "oracle": ["table", "runs", "--mix-protocols", "--select", "oracle", "--format", "csv"],
    "compare": ["compare", "runs", "--mix-protocols"],
    "report": ["report", "runs", "--mix-protocols", "-o", "page.html"],
    "status": ["status", "runs", "--all"],
    "list": ["list", "optimizers"],
    "import": ["import", "domainbed", "--out", "imported"],
    "train": [*WATCHED.split(), "runs"],
    "resume": [*WATCHED.split(), "stopped"],
    "cached": [*CACHED.split(), "again"],
    "sweep": ["sweep", "small.toml", "--engine", "here", "--threads", "1", "--device", "cpu", "--out", "runs"],
    "diwa": ["diwa", "digits", "--device", "cpu", "--out", "runs"],
}
SECONDS = 5.0
"""Of work that a command may take; it may wait for other programs a while longer."""
MEMORY = 2**32
"""Bytes that the commands may take."""
READERS = ("table", "oracle", "status", "compare", "report", "list")


class Waiting(Exception):
    """A command waits without end."""


@dataclass
class Told:
    """What a command said and left."""

    code: int
    out: str
    err: str
    page: Any = None
    left: dict[str, str] = field(default_factory=dict)


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Waiting

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def told(command: str, at: Path) -> Told:
    """Run a command in a folder; of a resumed run also the files that it leaves."""
    out, err, here = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(at)
    worked = time.process_time()
    try:
        with alarm(12 * SECONDS), redirect_stdout(out), redirect_stderr(err):
            code = main(COMMANDS[command])
        worked = time.process_time() - worked
    finally:
        os.chdir(here)
    assert worked < SECONDS, f"{command} worked for {worked:.1f} seconds"
    page = read_page((at / "page.html").read_text("utf-8")) if command == "report" and not code else None
    left = {}
    if command == "resume":
        kept = ("records.jsonl", "model.pt", "swad.pt", "swad.json", "config.json")
        found = [path for path in at.glob("stopped/*/*") if path.name in kept and path.is_file()]
        left = {path.name: digest(read_whole(path)) for path in found if path.stat().st_size < 2**24}
    return Told(code, plain(out.getvalue()), err.getvalue(), _stable(page), left)


def _stable(page: Any) -> Any:
    """The tables of a page, without what was timed."""
    return None if page is None else [table for table in page[1] if "step" not in table["caption"]]


@dataclass
class World:
    """A folder with everything, what commands say about it, and a copy to damage."""

    whole: Path
    broken: Path
    targets: list[str] = field(default_factory=list)
    said: dict[tuple[str, ...], Told] = field(default_factory=dict)

    def expected(self, command: str, *without: str) -> Told:
        """What a command says when some files or folders are not there."""
        key = (command, *without)
        if key not in self.said:
            restore(self.broken, self.whole)
            for name in without:
                path = self.broken / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            self.said[key] = told(command, self.broken)
        return self.said[key]


def quietly(words: list[str]) -> None:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        assert main(words) == 0, out.getvalue()


class Stop(Exception):
    """Stands for whatever ends a process."""


def stop(done: int, record: object) -> None:
    if done == 4:
        raise Stop


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A sweep of four runs with their means, runs by hand, one of them also half done, a cache, an import."""
    import torch

    root, threads = tmp_path_factory.mktemp("damage"), torch.get_num_threads()
    whole = root / "whole"
    whole.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limits[1]))  # an error here, not a dead machine
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr(frames, "_INDEXED", 3)
        patch.chdir(whole)
        (whole / "small.toml").write_text(SWEEP)
        pictures(whole / "set", each=5)
        for words in (COMMANDS["sweep"], COMMANDS["diwa"], COMMANDS["train"], [*CACHED.split(), "runs"]):
            quietly(words)
        (half_done,) = (path.parent for path in Path("runs").glob("*/swad.pt"))
        config = from_mapping(json.loads((half_done / "config.json").read_bytes()))
        parts = assemble(config, open_data("digits"), RunOptions(device="cpu"))
        with pytest.raises(Stop):
            run_typed(parts, Path("stopped") / config.run_id, RunOptions(watch="updates"), [], print, stop)
        append_line(Path("stopped") / config.run_id / OUTCOMES, {"ending": "stopped", "reason": "stopped"})
        for k in range(2):
            write(Path("domainbed"), lines_of(hparams=k), name=str(k))
        quietly(COMMANDS["table"])  # leaves its index
        files = sorted(str(path) for path in Path().rglob("*") if path.is_file())
        patch.chdir(root)
        yield World(whole, root / "broken", files)
    torch.set_num_threads(threads)
    resource.setrlimit(resource.RLIMIT_AS, limits)


def commands_for(target: str) -> list[str]:
    """The commands that read a file."""
    top, name = Path(target).parts[0], Path(target).name
    if top == "runs":
        trains = ["train"] if name not in ("frame.arrow", "frame.crc32", "small.json") else []
        return ["table", "table", "oracle", "status", "compare", "report", "sweep", "diwa", *trains]
    return {"stopped": ["resume"], "cache": ["cached"], "domainbed": ["import"]}.get(top, [])


QUICK = {"table", "oracle", "status", "import"}
Case = tuple[str, str, str, int]


def chosen_cases(targets: list[str], many: int, seed: int, thorough: bool) -> list[Case]:
    """(command, file, damage, seed), each kind of file in turn; most are of quick commands unless thorough."""
    random, cases = Random(seed), list[Case]()
    usable = [target for target in targets if commands_for(target)]
    kinds = sorted({kind_of(target) for target in usable})
    for number in itertools.count():
        target = random.choice([t for t in usable if kind_of(t) == kinds[number % len(kinds)]])
        commands = commands_for(target)
        if not thorough and random.random() > 0.04:
            commands = [command for command in commands if command in QUICK] or commands * (number < len(kinds))
        if commands:
            damage = list(DAMAGES)[len(cases) % len(DAMAGES)]
            cases.append((random.choice(commands), target, damage, random.randrange(2**31)))
        if len(cases) == many:
            break
    return cases


def kind_of(target: str) -> tuple[str, str]:
    """Files of one kind are alike but for the run they belong to."""
    return Path(target).parts[0], re.sub(r"\d+", "", Path(target).name) or Path(target).name


def check(world: World, case: Case) -> None:
    command, target, damage, seed = case
    whole = world.expected(command)
    restore(world.broken, world.whole)
    unlink_from_whole(world.broken / target)
    DAMAGES[damage](world.broken / target, Random(seed))
    now = told(command, world.broken)
    assert now.code in (0, 1, 2), now
    if command == "resume":
        assert now.code or now.left == whole.left, (now.err, now.out)
    elif same(now, whole) and now.code == whole.code:
        return
    run = str(Path(target).parent) if Path(target).parts[0] in ("runs", "stopped") else Path(target).parts[0]
    named = Path(run).name in now.err + now.out or Path(target).name in now.err + now.out
    gone = damage == "missing" or (damage, command) == (
        "folder",
        "diwa",
    )  # it needs a file
    if gone and target.endswith("/done"):  # then the run is not complete, and nothing is wrong
        assert same(now, world.expected(command, target))
        return
    if (command, damage, Path(target).name) == (
        "status",
        "missing",
        "small.json",
    ):  # as if never launched
        assert "holds no sweep" in now.err
        return
    if now.code == 0 and command in READERS and Path(target).parts[0] == "runs":
        lost = [(run,), (f"{run}/done",), (f"{run}/swad.json",)]
        parts = ("meta.json", "timings.jsonl", "watch.jsonl")  # `done` has their digests
        lost += [(f"{run}/{part}",) for part in parts if Path(target).name in (part, "done")]
        unseen = target.endswith("/done") and same(now, world.expected(command, f"{run}/done"))
        assert named or unseen, f"nothing names {run}: {now.err}"
        if Path(target).name != "small.json":
            assert any(same(now, world.expected(command, *some)) for some in lost), now.out + now.err
    elif command == "import":
        assert now.code == 0 or named  # a number that was changed in DomainBed's own files cannot be told
    elif command == "resume":
        assert now.code == 0 or named, now.err
    else:
        assert named, (now.err, now.out)


def same(one: Told, other: Told) -> bool:
    return (one.out, one.page) == (other.out, other.page)


def test_damage_is_told_or_changes_nothing(world: World) -> None:
    failed = list(failures(world, chosen_cases(world.targets, 200, 0, thorough=False)))
    assert not failed, "\n\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_much_more_damage_is_told_or_changes_nothing(world: World, seed: int) -> None:
    failed = list(failures(world, chosen_cases(world.targets, 250, seed, thorough=True)))
    assert not failed, "\n\n".join(failed)


def failures(world: World, cases: list[Case]) -> Iterator[str]:
    """All cases that fail, so that one look shows every hole."""
    for case in cases:
        try:
            check(world, case)
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-3:])[-1500:]
            yield f"{case}: {type(error).__name__}: {error}\n{where}"


def test_the_cases_cover_every_file_and_every_damage(world: World) -> None:
    names = {Path(t).name for t in world.targets if commands_for(t)}
    assert {
        *(
            "config.json",
            "meta.json",
            "records.jsonl",
            "timings.jsonl",
            "watch.jsonl",
            "outcomes.jsonl",
            "done",
        ),
        *("lock", "model.pt", "swad.pt", "swad.json", "checkpoint.pt", "checkpoint-before.pt", "small.json"),
        *("frame.arrow", "frame.crc32", "complete.json", "pixels.u8", "results.jsonl"),
    } <= names
    cases = chosen_cases(world.targets, 200, 0, thorough=False)
    kinds = {kind_of(target) for target in world.targets if commands_for(target)}
    assert {kind_of(target) for _, target, _, _ in cases} == kinds
    assert {damage for _, _, damage, _ in cases} == set(DAMAGES)
