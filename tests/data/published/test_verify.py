"""Verify names what is wrong, and the command line says it in sentences and exit codes."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genie_dg.cli.main import main
from genie_dg.data.image_folders import open_folder
from genie_dg.data.published.catalog import PUBLISHED, PublishedSet
from genie_dg.data.published.verify import Verification, verify
from genie_dg.data.registry import published_variant
from tests.data.pictures import folder

FACTS = PublishedSet("Mini", ("Mini",), ("ink", "oil"), 2, ("cat", "dog"), {"16 images": (8, 8)})


def report_of(root: Path, facts: PublishedSet | None = None, deep: bool = True) -> Verification:
    """Open a folder as its name would, and look at it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = open_folder(root)
    variant = published_variant(facts, data) if facts else ""
    return verify(replace(data, variant=variant), facts, root, deep=deep)


def test_a_good_set(tmp_path: Path) -> None:
    root = folder(tmp_path / "Mini")
    report = report_of(root, FACTS)
    assert (report.good, report.published_splits, report.problems) == (True, True, {})
    assert report.counts == {"ink": 8, "oil": 8}
    own = report_of(root)
    assert (own.good, own.published_splits) == (True, None)


def remove_domain(root: Path) -> None:
    for path in sorted((root / "oil").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (root / "oil").rmdir()


BREAKS: dict[str, tuple[Any, str, str, bool]] = {
    "missing file": (lambda r: (r / "ink/cat/001.png").unlink(), "count", "7 pictures, 8 in 16 images", True),
    "extra file": (
        lambda r: shutil.copy(r / "ink/cat/000.png", r / "ink/cat/x.png"),
        "count",
        "9 pictures",
        True,
    ),
    "zero byte": (
        lambda r: (r / "ink/cat/001.png").write_bytes(b""),
        "missing or empty file",
        "001.png",
        False,
    ),
    "undecodable": (lambda r: (r / "ink/cat/001.png").write_bytes(b"junk"), "undecodable", "001.png", False),
    "stray file": (lambda r: (r / "ink/cat/notes ü.txt").write_text("x"), "stray", "notes ü.txt", False),
    "stray folder": (lambda r: (r / "ink/.ipynb_checkpoints").mkdir(), "stray", ".ipynb_checkpoints", False),
    "extra domain": (lambda r: shutil.copytree(r / "ink", r / "wax"), "extra domain", "wax", True),
    "extra class": (lambda r: shutil.copytree(r / "ink/cat", r / "ink/cow"), "extra class", "cow", True),
    "missing domain": (remove_domain, "missing domain", "oil", True),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    root = folder(tmp_path / "Mini")
    change, kind, text, differ = BREAKS[name]
    change(root)
    report = report_of(root, FACTS)
    assert any(text in thing for thing in report.problems[kind]), report.problems
    assert report.published_splits is not differ
    assert report.good is (kind == "stray")
    quick = report_of(root, FACTS, deep=False)
    assert ("undecodable" in quick.problems, quick.good) == (False, kind in ("stray", "undecodable"))


def test_a_total_can_name_a_variant(tmp_path: Path) -> None:
    facts = PublishedSet("T", ("T",), ("ink", "oil"), 2, ("cat", "dog"), {"old": 16, "new": (9, 9)})
    assert report_of(folder(tmp_path / "T"), facts).published_splits


def test_the_facts_add_up() -> None:
    totals = {"PACS": 9991, "VLCS": 10729, "OfficeHome": 15588, "DomainNet": 586575}
    for name, total in totals.items():
        counts = next(iter(PUBLISHED[name].variants.values()))
        assert isinstance(counts, tuple)
        assert sum(counts) == total
    assert sum(PUBLISHED["TerraIncognita"].variants["24,330 images (2021 JSON)"]) == 24330  # type: ignore[arg-type]
    for facts in PUBLISHED.values():
        assert list(facts.domains) == sorted(facts.domains)
        assert list(facts.classes) == sorted(facts.classes)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["data", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder(tmp_path / "my set ü")
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert all(name in out for name in ("styleshapes", "PACS", "ColoredMNIST"))
    code, out, _ = run(capsys, "verify", str(root))
    assert code == 0
    assert "Everything is as it should be." in out
    code, out, _ = run(capsys, "cache", str(root), "--image-size", "16", "--cache", str(tmp_path / "c"))
    assert code == 0
    assert out.count("EvalSpec(size=16)") == 2
    (root / "ink" / "cat" / "000.png").write_bytes(b"junk")
    (root / "notes.txt").touch()
    code, out, _ = run(capsys, "verify", str(root))
    assert code == 1
    assert "undecodable: " in out
    assert f"stray: {root / 'notes.txt'}\n" in out
    code, _, err = run(capsys, "cache", str(root), "--cache", str(tmp_path / "c"))
    assert code == 2
    assert "000.png cannot be decoded" in err


def test_verify_fails_when_a_published_split_would_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(tmp_path / "PACS", domains=PUBLISHED["PACS"].domains, classes=PUBLISHED["PACS"].classes, each=1)
    code, out, _ = run(capsys, "verify", "pacs", "--root", str(tmp_path))
    assert code == 1
    assert "The splits differ from the published ones." in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("verify", "stileshapes"), "did you mean 'styleshapes'?"),
        (("verify", "digits"), "needs no check"),
        (("cache", "digits"), "needs no cache"),
        (("verify", "PACS"), "no folder was given"),
        (("wash",), "invalid choice: 'wash'"),
    ],
)
def test_bad_requests(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str) -> None:
    code, _, err = run(capsys, *words)
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
