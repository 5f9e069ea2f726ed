"""Unpack the corpus, run a command in this process, and read what it wrote."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ARCHIVE, EXPECTED = HERE / "runs.tar.gz", HERE / "expected"
PAGE = "page.html"
"""Where the cases of ``report`` write."""

UNTOLD = ("lock", "report.html", "launch.json")

ENVIRONMENT = {"COLUMNS": "400", "OMP_NUM_THREADS": "1"}
"""Of every command: no line is broken, and no two threads share a sum."""


def archived() -> dict[str, bytes]:
    """The files of the corpus, by name."""
    found = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            if not member.isfile() or Path(member.name).is_absolute() or ".." in Path(member.name).parts:
                raise ValueError(f"{member.name} is no plain file below the corpus; make the archive again.")
            file = archive.extractfile(member)
            found[member.name] = b"" if file is None else file.read()
    return found


def unpack(root: Path) -> None:
    """All runs and trees, below ``root``."""
    for name, data in archived().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def plain(text: str) -> str:
    """A text that does not tell the version of the package, without the columns that came later.

    >>> plain("| a | s/step |\\n| 1 |   0.02 |\\n\\nx"), plain("a,seconds_per_step,runs\\n1,0.02,ab\\n")
    ('| a |\\n| 1 |\\n\\nx', 'a\\n1\\n')
    """
    text = re.sub(r"genie-dg \d+\.\d+[\w.+]*", "genie-dg VERSION", text)
    if ",seconds_per_step,runs\n" in text:
        return "".join(f"{line.rsplit(',', 2)[0]}\n" for line in text.splitlines())
    lines, inside = [], False
    for line in text.split("\n"):
        if line.startswith("Nothing was learned: "):  # what `train` says since it looks
            continue
        inside = line.endswith("| s/step |") or (inside and line.startswith("|"))
        lines.append(line.rstrip("|").rpartition("|")[0] + "|" if inside else line)
    return "\n".join(lines)


def cases() -> list[dict[str, Any]]:
    """All cases: name, argv, exit, stdout, stderr, and what was written."""
    return [case for file in sorted(EXPECTED.glob("*.json")) for case in json.loads(file.read_bytes())]


def writes(argv: Sequence[str]) -> bool:
    """Whether a command changes files."""
    return argv[0] in ("demo", "import", "report", "sweep", "train") or "-o" in argv


def bring(argv: Sequence[str], source: Path, target: Path) -> None:
    """Copy what a command names from the corpus, so that it can be changed."""
    for word in argv:
        path = source / word
        if path.is_dir():
            shutil.copytree(path, target / word, dirs_exist_ok=True)
        elif path.is_file() and not (target / word).exists():
            (target / word).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / word)


def tree(folder: Path) -> dict[str, str]:
    """The files below a folder with their text, without locks, pages, digests and what was launched."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in UNTOLD)
    files = [path for path in files if path.parent.name != "sweeps" or path.suffix != ".toml"]
    texts = {path: "" if path.name == "done" else path.read_text("utf-8", "replace") for path in files}
    texts = {path: re.sub(r'^ "digest": "\w+",\n', "", text, flags=re.M) for path, text in texts.items()}
    return {path.relative_to(folder).as_posix(): plain(text) for path, text in texts.items()}


class _Page(HTMLParser):
    """The numbers and the tables of a page of ``report``."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = ""
        self.tables: list[dict[str, Any]] = []
        self._into: list[str] | None = None
        self._in_numbers = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_numbers = tag == "script" and ("id", "numbers") in attrs
        if tag == "table":
            self.tables.append({"caption": "", "rows": []})
        elif tag == "tr":
            self.tables[-1]["rows"].append([])
        elif tag in ("caption", "th", "td"):
            self._into = []

    def handle_endtag(self, tag: str) -> None:
        self._in_numbers = False
        if tag in ("caption", "th", "td") and self._into is not None:
            text, self._into = " ".join("".join(self._into).split()), None
            if tag == "caption":
                self.tables[-1]["caption"] = text
            else:
                self.tables[-1]["rows"][-1].append(text)

    def handle_data(self, data: str) -> None:
        if self._in_numbers:
            self.numbers += data
        elif self._into is not None:
            self._into.append(data)


def read_page(text: str) -> tuple[Any, list[dict[str, Any]]]:
    """The numbers of a page as data, and its tables: captions, and the visible text of every cell.

    >>> read_page('<table><caption>A</caption><tr><th>x</th><td>1.5<sup>2</sup></td></tr></table>')
    (None, [{'caption': 'A', 'rows': [['x', '1.52']]}])
    """
    page = _Page()
    page.feed(text)
    return json.loads(page.numbers) if page.numbers else None, page.tables
