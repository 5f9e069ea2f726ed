"""How the corpus came to be: train tiny runs, damage some, pack them, ask the command line about them.

It is made with the code from before the rebuild, here in the folder OLD::

    git worktree add OLD 26aa359
    PYTHONPATH=OLD/src python -m tests.corpus.make

It takes about five minutes. Another processor may give other last digits in the records, so the archive is made
once; ``--keep-runs`` leaves it as it is and only asks again.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from tests.corpus.cases import BY_HAND, all_cases, train_words
from tests.corpus.domainbed import lines_of, make_trees, write
from tests.corpus.replay import (
    ARCHIVE,
    ENVIRONMENT,
    EXPECTED,
    PAGE,
    bring,
    plain,
    read_page,
    tree,
    unpack,
    writes,
)

KEPT = (
    *(
        "config.json",
        "meta.json",
        "records.jsonl",
        "timings.jsonl",
        "swad.json",
        "watch.jsonl",
        "failures.jsonl",
    ),
    *("done", "results.jsonl", "notes.txt"),
)
"""What stays of a run, beside lists of sweeps and TOML files."""

NORMAL = {"backbone": "mlp", "steps": 9, "checkpoint_every": 4}
SHORT = {"backbone": "mlp", "steps": 5, "checkpoint_every": 2}
LONG = {"backbone": "mlp", "steps": 17, "checkpoint_every": 2}
THREE, TWO = [["0 degrees"], ["30 degrees"], ["75 degrees"]], [["0 degrees"], ["75 degrees"]]
PAIRS = [[0], *([0, k] for k in range(1, 6)), [3], [3, 4]]  # enough for 0 degrees, not for 45 degrees

OWN_PROTOCOL = """name = "own"
base = "genie-paper"
small_backbone = "mlp"
steps = 17
checkpoint_every = 2
[search]
batch_size = "fixed"
"""


def make_sweeps(root: Path) -> None:
    """Sweeps in folders of their own; some folders hold two."""
    sweep(root, "domainbed", "adam genie", THREE, hparams=3, algorithms=["ERM", "CORAL"])
    sweep(root, "domainbed", "adam", TWO, name="domainbed-irm", algorithms=["IRM"])
    paper = {"protocol": "genie-paper", "overrides": LONG}
    sweep(root, "genie-paper", "adam sam genie", [[1], [4]], settings={"genie": {"lr": 1.0}}, **paper)
    sweep(root, "single-source", "adam genie", "single-source", hparams=1, overrides=SHORT)
    both = {
        "overrides": {**SHORT, "pretrained": False},
        "settings": {"adam": {"lr": 0.003}, "genie": {"lr": 1.0}},
    }
    sweep(root, "both", "adam genie", "both", datasets=["coloured-digits"], **both)
    sweep(root, "pairs", "adam", PAIRS, overrides=SHORT)
    shutil.rmtree(find(root / "pairs", test_domains=[0, 2], trial_seed=1, hparams_seed=1))
    sweep(root, "swad", "adam genie", TWO, overrides={**LONG, "swad": True})
    sweep(root, "swad", "adam", TWO, name="swad-without", hparams=1, overrides=LONG)
    sweep(root, "watched", "adam genie", [["45 degrees"]], words=["--watch", "updates,osgr"], hparams=1)
    sweep(
        root, "watched", "sgd", [["45 degrees"]], name="watched-less", words=["--watch", "updates"], hparams=1
    )
    for name, protocol in (("two-protocols", "domainbed"), ("two-protocols-paper", "genie-paper")):
        sweep(root, "two-protocols", "adam genie", [["0 degrees"]], name=name, hparams=1, protocol=protocol)
    (root / "own-protocol").mkdir()
    (root / "own-protocol" / "own.toml").write_text(OWN_PROTOCOL)
    own = {"protocol": "own.toml", "overrides": {}, "trials": 1, "name": "own-protocol/sweep"}
    sweep(root, "own-protocol", "adam genie", TWO, settings={"genie": {"lr": 1.0}}, **own)
    sweep(root, "broken", "adam sgd", THREE, overrides=SHORT)
    swad = {"overrides": {**SHORT, "swad": True}, "hparams": 1}
    sweep(root, "broken", "adam", [["0 degrees"]], name="broken-swad", **swad)
    failing = {"settings": {"sgd": {"lr": 1e30}}, "hparams": [2], "trials": 1, "overrides": SHORT}
    sweep(root, "broken", "sgd", [["75 degrees"]], name="broken-failing", fails=True, **failing)


def sweep(
    root: Path,
    out: str,
    optimizers: str,
    test_domains: str | Sequence[Sequence[str | int]],
    *,
    name: str = "",
    protocol: str = "domainbed",
    algorithms: Sequence[str] = ("ERM",),
    datasets: Sequence[str] = ("digits",),
    hparams: int | Sequence[int] = 2,
    trials: int = 2,
    overrides: dict[str, Any] = NORMAL,
    settings: dict[str, dict[str, Any]] | None = None,
    words: Sequence[str] = (),
    fails: bool = False,
) -> None:
    """Write the file of a sweep beside its folder, and run it."""
    told = {"name": (name or out).replace("/", "-"), "protocol": protocol, "datasets": datasets}
    told |= {"algorithms": algorithms, "optimizers": optimizers.split(), "test_domains": test_domains}
    told |= {"hparams": hparams, "trials": trials}
    tables = {"overrides": overrides, **{f"optimizer_settings.{key}": x for key, x in (settings or {}).items()}}
    lines = [f"{key} = {json.dumps(value)}" for key, value in told.items()]
    for table, values in tables.items():
        lines += (
            [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())] if values else []
        )
    file = f"{name or out}.toml"
    (root / file).write_text("\n".join(lines) + "\n")
    answer = ask(root, ["sweep", file, "--out", out, "--engine", "here", "--device", "cpu", *words])
    assert answer["exit"] == fails, answer


def find(folder: Path, **fields: Any) -> Path:
    """The one run whose configuration says so."""
    configs = {path.parent: json.loads(path.read_text()) for path in folder.glob("*/config.json")}
    (found,) = (run for run, config in configs.items() if all(config[key] == x for key, x in fields.items()))
    return found


def damage(root: Path) -> None:
    """Runs that were killed, that failed, that someone edited, moved or copied; lists that are none."""
    broken, copies = root / "broken", root / "copies"

    def run(optimizer: str, test: int, trial: int, draw: int, swad: bool = False) -> Path:
        fields = {"optimizer": optimizer, "test_domains": [test], "trial_seed": trial, "hparams_seed": draw}
        return find(broken, swad=swad, **fields)

    def edit(path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text, (path, old)
        path.write_text(text.replace(old, new, 1))

    at = {
        (o, k, t, d): run(o, k, t, d)
        for o in ("adam", "sgd")
        for k in (0, 2, 5)
        for t in (0, 1)
        for d in (0, 1)
    }
    (run("adam", 0, 0, 0, swad=True) / "swad.json").unlink()
    (run("adam", 0, 1, 0, swad=True) / "swad.json").write_text('{"step": 4}')
    killed = at["adam", 0, 0, 1]
    (killed / "done").unlink()
    (killed / "checkpoint.pt").touch()
    lines = (killed / "records.jsonl").read_text().splitlines()
    (killed / "records.jsonl").write_text(lines[0] + "\n" + lines[1][:50])
    shutil.rmtree(at["adam", 0, 1, 1])
    (at["adam", 2, 0, 1] / "config.json").write_text('{"algorithm":"ERM","augm')
    (at["adam", 2, 1, 0] / "meta.json").write_text("{")
    edit(at["adam", 2, 1, 1] / "records.jsonl", '"step": 2', '"step": "two"')
    note = '{"attempt": 1, "reason": "The process that trained it ended with signal 9."}\n'
    (at["adam", 5, 0, 1] / "failures.jsonl").write_text(note)  # and done since
    edit(at["sgd", 0, 0, 0] / "records.jsonl", '"in_acc": [0.', '"in_acc": [1.')
    path = at["sgd", 0, 0, 1] / "records.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[1] + "\n")
    edit(at["sgd", 0, 1, 0] / "records.jsonl", '"loss": 2', '"loss": NaN, "before": 2')
    (at["sgd", 0, 1, 1] / "records.jsonl").write_text("")
    (at["sgd", 2, 0, 0] / "done").unlink()
    (at["sgd", 2, 0, 0] / "failures.jsonl").write_text(note + '{"attempt": 2, "rea')
    (at["sgd", 2, 0, 1] / "meta.json").unlink()
    edit(at["sgd", 2, 1, 0] / "config.json", "{", '{"colour":"red",')
    (at["sgd", 2, 1, 1] / "config.json").unlink()
    edit(at["sgd", 5, 0, 0] / "config.json", '"test_domains":[5]', '"test_domains":[9]')
    edit(at["sgd", 5, 0, 1] / "config.json", '"test_domains":[5]', '"test_domains":"5"')
    (at["sgd", 5, 1, 0] / "done").unlink()
    (at["sgd", 5, 1, 0] / "checkpoint.pt").touch()
    (at["sgd", 5, 1, 1] / "done").unlink()
    shutil.copytree(at["adam", 5, 0, 0], broken / "a-copy")
    shutil.copytree(at["adam", 5, 1, 0], copies / at["adam", 5, 1, 0].name)
    shutil.copytree(at["adam", 5, 1, 1], copies / "not-complete")
    (copies / "not-complete" / "done").unlink()
    write(broken, lines_of(), name="of-domainbed")
    for name, text in {"empty/notes.txt": "no runs", "bad-list/sweeps/a.json": '{"name": "a"}'}.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)


def rename(root: Path) -> None:
    """Copies of runs under names that formats must escape, with a number of their own in the records, and
    copies that name another version of the data.
    """
    for path in (root / "watched").glob("*/config.json"):
        run, text = root / "names" / path.parent.name, path.read_text()
        shutil.copytree(path.parent, run)
        (run / "config.json").write_text(text.replace('"digits"', '"my_set & <more>"'))
        for old, new in {"0 degrees": "50 % #1", "45 degrees": "art_painting|a*b", "75 degrees": "_x_"}.items():
            (run / "meta.json").write_text((run / "meta.json").read_text().replace(f'"{old}"', f'"{new}"'))
        lines = (run / "records.jsonl").read_text().splitlines()
        told = [f'{{"own number": {k / 8}, {line[1:]}' for k, line in enumerate(lines)]
        (run / "records.jsonl").write_text("\n".join(told) + "\n")
        run, digest = root / "digests" / path.parent.name, json.loads(text)["data_digest"]
        shutil.copytree(path.parent, run)
        (run / "config.json").write_text(text.replace(digest, digest[::-1]))


def make_imports(root: Path) -> None:
    make_trees(root)
    for rest in ("", "-more", "-other", "-odd"):
        assert ask(root, ["import", f"tree{rest}", "--out", f"imported{rest}"])["exit"] == 0
    shutil.copytree(root / "imported-odd", root / "imported-odd-later")
    assert ask(root, ["import", "tree-odd-later", "--out", "imported-odd-later"])["exit"] == 0


def make_runs(root: Path) -> None:
    root.mkdir()
    make_sweeps(root)
    for name in BY_HAND:
        assert ask(root, train_words(name))["exit"] == 0, name
    again = dict(all_cases("", ""))
    assert ask(root, again["demo again"])["exit"] == 0
    for path in root.rglob("timings.jsonl"):  # never the same twice
        lines = [json.loads(line) | {"seconds": 0.25} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
    for path in [path for path in root.rglob("*") if path.is_file()]:
        if (
            path.name not in KEPT
            and path.suffix not in (".toml", ".md", ".csv")
            and path.parent.name != "sweeps"
        ):
            path.unlink()
    damage(root)
    rename(root)
    make_imports(root)


def pack(root: Path) -> None:
    """All files in one archive, which has the same bytes when the files have."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            data = path.read_bytes()
            assert str(root).encode() not in data, path
            member = tarfile.TarInfo(path.relative_to(root).as_posix())
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    ARCHIVE.write_bytes(gzip.compress(raw.getvalue(), 9, mtime=0))


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def ask(folder: Path, argv: list[str]) -> dict[str, Any]:
    """Run a command in a folder: its exit code and what it said."""
    from genie_dg.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with inside(folder), redirect_stdout(out), redirect_stderr(err):
        code = main(argv)
    return {"exit": code, "stdout": plain(out.getvalue()), "stderr": err.getvalue()}


def answer_of(name: str, argv: list[str], corpus: Path) -> dict[str, Any]:
    """A case with what it wrote: files as text, a page as numbers, runs as the folder that holds the same."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) if writes(argv) else corpus
        if writes(argv):
            bring(argv, corpus, folder)
        case = {"name": name, "argv": argv, **ask(folder, argv)}
        if (folder / PAGE).exists():
            case["numbers"], case["tables"] = read_page((folder / PAGE).read_text(encoding="utf-8"))
        elif "-o" in argv and case["exit"] == 0:
            case["files"] = {argv[-1]: (folder / argv[-1]).read_text(encoding="utf-8")}
        elif "--out" in argv and case["exit"] == 0:
            out = argv[argv.index("--out") + 1]
            names = [out, *sorted(path.name for path in corpus.glob("imported*"))]
            case["trees"] = {out: next(x for x in names if tree(corpus / x) == tree(folder / out))}
    return case


def make_expected(corpus: Path) -> None:
    one = min(path.parent for path in (corpus / "domainbed").glob("*/config.json"))
    two = find(corpus / "by-hand", test_domains=[0, 5])
    found: dict[str, list[dict[str, Any]]] = {}
    for name, argv in all_cases(*(path.relative_to(corpus).as_posix() for path in (one, two))):
        found.setdefault(argv[0], []).append(answer_of(name, argv, corpus))
    shutil.rmtree(EXPECTED, ignore_errors=True)
    EXPECTED.mkdir()
    for verb, cases in found.items():
        text = json.dumps(cases, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        assert str(corpus.parent) not in text, verb
        (EXPECTED / f"{verb}.json").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep-runs", action="store_true", help="ask about the archive that is there")
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    print(f"made with {importlib.import_module('genie_dg').__file__}")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        if not arguments.keep_runs:
            make_runs(Path(folder) / "made")
            pack(Path(folder) / "made")
        unpack(corpus)
        make_expected(corpus)


if __name__ == "__main__":
    main()
