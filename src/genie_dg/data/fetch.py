"""Fetch one file from the first mirror that has it, and go on where a broken transfer stopped.

Bytes go to ``<name>.part``; ``<name>.part.json`` beside it says which version of which address they are of, so
that a file that has changed is never glued to the old one. The file takes its name when it is whole and its
checksum, where one is known, is right; one with a wrong checksum is kept as ``<name>.bad``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._alone import alone
from ._web import Failure, FetchError, addresses, ask, page_title, read
from .archives import Progress

__all__ = ["FetchError", "addresses", "fetch"]

_LONGEST_PAUSE = 60.0


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """A disk that is full or cannot be written ends everything: no other mirror would help."""
    try:
        yield
    except OSError as error:
        raise FetchError(
            f"{path} cannot be written: {error.strerror}; what has come so far is kept."
        ) from error


@dataclass(frozen=True)
class _Part:
    """The unfinished file and its note: the address, its validator (ETag or date) and its length in all."""

    path: Path

    @property
    def _note(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def length(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def note(self) -> tuple[str, str, int | None]:
        """Address, validator and length; empty without a whole note, and then the part is not trusted."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            return str(note["url"]), str(note["validator"] or ""), note["total"]
        except (OSError, ValueError, KeyError, TypeError):
            return "", "", None

    def begin(self, url: str, validator: str | None, total: int | None) -> None:
        """Empty the part, then note what will come: in this order old bytes never have a new note."""
        draft = self._note.with_name(self._note.name + ".new")
        with _disk(self.path):
            self.path.write_bytes(b"")
            draft.write_text(json.dumps({"url": url, "validator": validator, "total": total}), encoding="utf-8")
            draft.replace(self._note)

    def rename(self, name: str) -> Path:
        """Sync the file and give it its name; a crash in between is a whole part, which is found again."""
        with _disk(self.path):
            with self.path.open("rb+") as file:
                os.fsync(file.fileno())
            named = self.path.replace(self.path.with_name(name))
            self._note.unlink(missing_ok=True)
            return named


def _goes_on(response: Any, start: int, validator: str, total: int | None) -> bool:
    """Does a partial answer begin where the part ends, in the same version of the file?"""
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    sent = response.headers.get("ETag" if validator.startswith('"') else "Last-Modified", validator)
    return span is not None and sent == validator and int(span[1]) == start and span[2] in ("*", str(total))


def _start_over(response: Any, url: str, part: _Part, size: int | None) -> int | None:
    """Begin the part anew for a whole answer and return its length, where the server says it."""
    claimed = response.headers.get("Content-Length", "")
    total = int(claimed) if claimed.isdecimal() else None
    if size is not None and total not in (None, size):
        raise Failure(f"it offers {total:,} bytes and not the {size:,} expected")
    coding = response.headers.get("Content-Encoding", "identity")
    if coding != "identity" and not part.path.name.endswith("gz.part"):  # some servers call a .gz file that
        raise Failure(f"it sends the file in the coding {coding!r}, which was not asked for")
    etag = response.headers.get("ETag", "")  # a weak one (W/...) does not promise the same bytes
    part.begin(url, etag if etag.startswith('"') else response.headers.get("Last-Modified"), total)
    return total


def _transfer(url: str, part: _Part, size: int | None, timeout: float, progress: Progress | None) -> None:
    """One request. The part is whole afterwards, or `Failure` says why not."""
    known, validator, total = part.note()
    start = part.length() if known == url and validator else 0
    if start and start == total:
        return
    headers = {"Range": f"bytes={start}-", "If-Range": validator} if start else {}
    with ask(url, headers, timeout) as response:
        if (
            response.status == 416
            and response.headers.get("Content-Range") == f"bytes */{start}"
            and total is None
        ):
            return  # whole: the first answer had not said how long it is
        if response.status == 416 or (
            response.status == 206 and not _goes_on(response, start, validator, total)
        ):
            part.begin(url, None, None)
            raise Failure("the file there has changed", again=True)
        data = read(response)
        title = page_title(data, response.headers.get("Content-Type", ""))
        if title is not None:
            raise Failure(f"a web page came ({title}) and not the file")
        if response.status != 206:
            start, total = 0, _start_over(response, url, part, size)
        with part.path.open("ab") as file:
            while data:
                with _disk(part.path):
                    file.write(data)
                    file.flush()
                start += len(data)
                if progress is not None:
                    progress(start, total)
                data = read(response) if start != total else b""
    if total is not None and start != total:
        raise Failure(f"it broke off after {start:,} of {total:,} bytes", again=True)


def _wrong(path: Path, sha256: str | None, size: int | None) -> str | None:
    """What is wrong with a whole file, or None."""
    found = path.stat().st_size
    if size is not None and found != size:
        return f"it has {found:,} bytes and not the {size:,} expected"
    if sha256 is not None:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
        if digest.hexdigest() != sha256.lower():
            return f"its SHA-256 is {digest.hexdigest()} and not {sha256.lower()}"
    return None


def _retry(
    url: str,
    part: _Part,
    size: int | None,
    timeout: float,
    progress: Progress | None,
    attempts: int,
    pause: float,
) -> None:
    """Transfer, again and again while there is hope; an attempt that brought bytes starts the count anew."""
    failures = 0
    while True:
        before = part.length()
        try:
            return _transfer(url, part, size, timeout, progress)
        except Failure as failure:
            failures = 1 if part.length() > before else failures + 1
            if not failure.again or failures >= attempts:
                raise
            time.sleep(min(max(failure.wait, pause * 2 ** (failures - 1)), _LONGEST_PAUSE))


def fetch(
    sources: Sequence[str],
    target: Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    progress: Progress | None = None,
    timeout: float = 30.0,
    attempts: int = 4,
    pause: float = 1.0,
) -> Path:
    """Fetch ``target`` from the first source that delivers it; a file that is there already is not fetched.

    Args:
        sources: http or https addresses, or ``drive:<id>``, best first; the one that a part is of comes before.
        target: what the file will be called; its folder is made.
        sha256: checksum in hexadecimal, where known.
        size: number of bytes, where known.
        progress: called with the bytes that are there and their number, or None where the server does not say.
        timeout: seconds without a byte before a connection counts as broken.
        attempts: failures in a row before a mirror is given up.
        pause: seconds before the second attempt; doubled for each further one.

    Raises:
        FetchError: no mirror delivered; one sentence with each reason and the place to put the file by hand.
    """
    urls = [url for source in sources for url in addresses(source)]
    part = _Part(target.with_name(target.name + ".part"))
    with alone(target.with_name(target.name + ".lock")):
        if target.exists():
            if wrong := _wrong(target, sha256, size):
                raise FetchError(f"{target} is there already but {wrong}; remove it and try again.")
            return target
        reasons = []
        for url in sorted(urls, key=lambda url: url != part.note()[0]):
            try:
                _retry(url, part, size, timeout, progress, attempts, pause)
            except Failure as failure:
                reasons.append(f"{url}: {failure}")
                continue
            if wrong := _wrong(part.path, sha256, size):
                reasons.append(f"{url}: {wrong}, kept as {part.rename(target.name + '.bad').name}")
                continue
            return part.rename(target.name)
    raise FetchError(
        f"{target.name} could not be fetched ({'; '.join(reasons) or 'no source was given'}); "
        f"download it by hand, put it at {target} and try again."
    )
