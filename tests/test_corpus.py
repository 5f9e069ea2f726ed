"""What the command line says about runs of every kind is what it said before it was rebuilt.

Where it succeeds, its output is compared to the last byte, and of its notes the number; where it refuses, the
exit code. Deliberate differences are listed in `tests.corpus.corrections`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from genie_dg.cli.main import main
from tests.corpus.corrections import CORRECTIONS, corrections_of, known_corrections
from tests.corpus.replay import (
    ENVIRONMENT,
    PAGE,
    archived,
    bring,
    cases,
    plain,
    read_page,
    tree,
    unpack,
    writes,
)

Case = dict[str, Any]
CASES = cases()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs, for reading."""
    root = tmp_path_factory.mktemp("corpus")
    unpack(root)
    return root


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_the_answer_is_as_before(
    case: Case,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    if writes(case["argv"]):
        bring(case["argv"], corpus, tmp_path)
    monkeypatch.chdir(tmp_path if writes(case["argv"]) else corpus)
    code = main(case["argv"])
    told = capsys.readouterr()
    assert str(code) == before(case, "exit", str(case["exit"])), told.err
    if code == 0:
        padded = spacing(case)
        assert padded(plain(told.out)) == padded(before(case, "stdout", case["stdout"]))
        assert len(told.err.splitlines()) == len(before(case, "stderr", case["stderr"]).splitlines()), told.err
        check_written(case, corpus)


def before(case: Case, part: str, text: str) -> str:
    """What was said before, corrected."""
    return known_corrections(f"{case['name']}#{part}", text)


def check_written(case: Case, corpus: Path) -> None:
    """Compare what a command wrote into the folder it ran in."""
    padded = spacing(case)
    for name, text in case.get("files", {}).items():
        assert padded(plain(Path(name).read_text(encoding="utf-8"))) == padded(
            before(case, f"file {name}", text)
        )
    for out, same in case.get("trees", {}).items():
        found, known = tree(Path(out)), tree(corpus / same)
        assert sorted(found) == sorted(known)
        for name, text in known.items():
            assert padded(found[name]) == padded(before(case, f"file {name}", text)), name
    if "numbers" in case:
        numbers, tables = read_page(Path(PAGE).read_text(encoding="utf-8"))
        known_numbers = json.loads(before(case, "numbers", json.dumps(case["numbers"], ensure_ascii=False)))
        assert only(numbers, known_numbers) == known_numbers
        for table in json.loads(before(case, "tables", json.dumps(case["tables"], ensure_ascii=False))):
            assert table in [cut(t, table) for t in tables if t["caption"] == table["caption"]]


def spacing(case: Case) -> Callable[[str], str]:
    """What is left out of a comparison: the padding of tables whose columns have got other widths since."""
    corrected = any("one trial" in reason for _, _, reason in corrections_of(f"{case['name']}#stdout"))
    return squeezed if corrected else str


def squeezed(text: str) -> str:
    """Markdown tables without what only aligns them.

    >>> squeezed("| a   |   b |\\n| --- | --: |")
    '|a|b|\\n|-|-:|'
    """
    lines = text.split("\n")
    return "\n".join(re.sub(r" *\| *", "|", re.sub("-{2,}", "-", x)) if x[:1] == "|" else x for x in lines)


def cut(table: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """A table of a page without the columns that are new at its right."""
    rows = zip(table["rows"], known["rows"], strict=False)
    return {**table, "rows": [row[: len(old)] for row, old in rows] + table["rows"][len(known["rows"]) :]}


def only(found: Any, known: Any) -> Any:
    """The data without the keys that are new.

    >>> only({"a": [{"b": 1, "c": 2}], "d": 3}, {"a": [{"b": 5}]})
    {'a': [{'b': 1}]}
    """
    if isinstance(found, dict) and isinstance(known, dict):
        return {key: only(value, known[key]) for key, value in found.items() if key in known}
    if isinstance(found, list) and isinstance(known, list) and len(found) == len(known):
        return [only(x, y) for x, y in zip(found, known, strict=True)]
    return found


def test_reading_changes_nothing(corpus: Path) -> None:
    found = {path.relative_to(corpus).as_posix(): path for path in corpus.rglob("*") if path.is_file()}
    known = archived()
    assert sorted(found) == sorted(known)
    assert [name for name, path in found.items() if path.read_bytes() != known[name]] == []


def test_every_correction_is_needed() -> None:
    """A correction that matches no case, or finds nothing to correct, is out of date."""
    files = archived()
    texts = {f"{case['name']}#{part}": text for case in CASES for part, text in texts_of(case, files).items()}
    for glob, corrections in CORRECTIONS.items():
        for old, _, reason in corrections:
            pattern = old if isinstance(old, re.Pattern) else re.compile(re.escape(old))
            assert any(fnmatchcase(name, glob) and pattern.search(text) for name, text in texts.items()), reason


def texts_of(case: Case, files: dict[str, bytes]) -> dict[str, str]:
    """What was said before, by part."""
    told = {"exit": str(case["exit"]), "stdout": case["stdout"], "stderr": case["stderr"]}
    told |= {key: json.dumps(case[key], ensure_ascii=False) for key in ("numbers", "tables") if key in case}
    told |= {f"file {name}": text for name, text in case.get("files", {}).items()}
    for same in case.get("trees", {}).values():
        inside = {
            name.removeprefix(f"{same}/"): data for name, data in files.items() if name.startswith(f"{same}/")
        }
        told |= {f"file {name}": data.decode("utf-8", "replace") for name, data in inside.items()}
    return told
