"""Fetch one file from the first mirror that has it, and go on where a broken transfer stopped.

Bytes go to ``<name>.part``; ``<name>.part.json`` beside it says which version of which address they are of, so
that a file that has changed is never joined to the old one. The file takes its name when it is whole and its
checksum, where one is known, is right; one with a wrong checksum is kept as ``<name>.bad``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from genie_dg.check import MissingPackage
from genie_dg.files import lock, write_json

from ..domains import DataError
from ..progress import Progress, silent

CHUNK = 1 << 18
_LONGEST_PAUSE = 60.0
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


class FetchError(DataError):
    """The file could not be fetched; the message names each mirror with its reason."""


class _Failure(Exception):
    """Why one attempt failed, whether the same address may do better, and after how many seconds."""

    def __init__(self, reason: str, again: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.again, self.wait = again, wait


def addresses(source: str) -> tuple[str, ...]:
    """The addresses behind a source: an http address is itself, ``drive:<id>`` is a file on Google Drive.

    Drive answers the first address with a page about viruses when a file is big; the second skips that page.

    >>> addresses("drive:1a")[0]
    'https://drive.google.com/uc?export=download&id=1a'
    """
    if source.startswith("drive:"):
        key = source.removeprefix("drive:")
        return (
            f"https://drive.google.com/uc?export=download&id={key}",
            f"https://drive.usercontent.google.com/download?id={key}&confirm=t",
        )
    parts = urlsplit(source)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise FetchError(
            f"Got a source {source[:8]!r}...; allowed are http:// and https:// (no login), drive:<id>."
        )
    return (source,)


@contextmanager
def _network() -> Iterator[None]:
    """Every way in which a transfer can fail as one short reason."""
    from requests.exceptions import InvalidSchema, RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except InvalidSchema as error:
        raise _Failure("it redirects to an address that is neither http nor https") from error
    except (RequestException, HTTPError, OSError) as error:
        cause: BaseException = error
        while deeper := cause.__cause__ or cause.__context__:
            cause = deeper
        # A name or a port that does not exist is not tried again.
        final = isinstance(cause, (ConnectionRefusedError, ssl.SSLCertVerificationError, socket.gaierror))
        final = final and getattr(cause, "errno", None) != socket.EAI_AGAIN
        text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise _Failure(text, again=not final) from error


def _ask(url: str, headers: dict[str, str], timeout: float) -> Any:
    """The open response to a GET. Status 416, which only a resumed transfer can meet, is a response as well."""
    try:
        import requests
    except ImportError as error:
        raise MissingPackage(
            'Downloads need requests, which is not installed; run pip install "genie-dg[bench]" and try again.'
        ) from error
    headers = {"User-Agent": "genie-dg", "Accept-Encoding": "identity", **headers}
    # No login is ever sent: without auth= requests would look one up in the user's .netrc.
    options: Any = {"headers": headers, "timeout": timeout, "stream": True, "auth": lambda request: request}
    with _network():
        response = requests.get(url, **options)
    if response.status_code in (200, 206) or (response.status_code == 416 and "Range" in headers):
        response.raw.enforce_content_length = False  # a transfer that breaks off is noticed, and goes on, here
        return response
    response.close()
    wait = response.headers.get("Retry-After", "")
    again, seconds = response.status_code in _TEMPORARY, float(wait) if wait.isdecimal() else 0.0
    raise _Failure(f"HTTP {response.status_code} {response.reason}", again, seconds)


def _read(response: Any) -> bytes:
    """The next bytes that have arrived, at most `CHUNK`, as they were sent; empty at the end."""
    with _network():
        return bytes(response.raw.read1(CHUNK, decode_content=False))


def page_title(head: bytes, content_type: str) -> str | None:
    """The title of a web page that was sent in place of a file, or None for a file.

    >>> page_title(b"<!DOCTYPE html><title>Quota exceeded</title>", "")
    'Quota exceeded'
    """
    start = head[:512].lstrip().lower()
    if not (start.startswith((b"<!doctype html", b"<html")) or content_type.lower().startswith("text/html")):
        return None
    title = re.search(rb"<title>(.{1,80}?)</title>", head, re.IGNORECASE | re.DOTALL)
    return title.group(1).decode("utf-8", "replace").strip() if title else "without a title"


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """A disk that is full or cannot be written ends everything: no other mirror would help."""
    try:
        yield
    except OSError as error:
        raise FetchError(f"{path} cannot be written: {error.strerror}; what was fetched is kept.") from error


class _Part:
    """The unfinished file and its note: the address, its validator (ETag or date) and its length in all."""

    def __init__(self, path: Path) -> None:
        self.path, self._note = path, path.with_name(path.name + ".json")

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
        """Empty the part, then note what follows: in this order old bytes never have a new note."""
        with _disk(self.path):
            self.path.write_bytes(b"")
        write_json(self._note, {"url": url, "validator": validator, "total": total})

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
        raise _Failure(f"it offers {total:,} bytes and not the {size:,} expected")
    coding = response.headers.get("Content-Encoding", "identity")
    if coding != "identity" and not part.path.name.endswith("gz.part"):  # some servers call a .gz file that
        raise _Failure(f"it sends the file in the coding {coding!r}, which was not asked for")
    etag = response.headers.get("ETag", "")  # a weak one (W/...) does not promise the same bytes
    part.begin(url, etag if etag.startswith('"') else response.headers.get("Last-Modified"), total)
    return total


def _transfer(url: str, part: _Part, size: int | None, timeout: float, progress: Progress) -> None:
    """One request. The part is whole afterwards, or `_Failure` says why not."""
    known, validator, total = part.note()
    start = part.length() if known == url and validator else 0
    if start and start == total:
        return
    headers = {"Range": f"bytes={start}-", "If-Range": validator} if start else {}
    with _ask(url, headers, timeout) as response:
        status, span = response.status_code, response.headers.get("Content-Range")
        if status == 416 and span == f"bytes */{start}" and total is None:
            return  # whole: the first answer had not said how long it is
        if status == 416 or (status == 206 and not _goes_on(response, start, validator, total)):
            part.begin(url, None, None)
            raise _Failure("the file there has changed", again=True)
        data = _read(response)
        title = page_title(data, response.headers.get("Content-Type", ""))
        if title is not None:
            raise _Failure(f"it sends a web page ({title}) and not the file")
        if status != 206:
            start, total = 0, _start_over(response, url, part, size)
        with part.path.open("ab") as file:
            while data:
                with _disk(part.path):
                    file.write(data)
                    file.flush()
                start += len(data)
                progress(start, total)
                data = _read(response) if start != total else b""
    if total is not None and start != total:
        raise _Failure(f"it broke off after {start:,} of {total:,} bytes", again=True)


def _problem(path: Path, sha256: str | None, size: int | None) -> str | None:
    """What is wrong with a whole file, or None."""
    length = path.stat().st_size
    if size is not None and length != size:
        return f"it has {length:,} bytes and not the {size:,} expected"
    if sha256 is not None:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
        if digest.hexdigest() != sha256.lower():
            return f"its SHA-256 is {digest.hexdigest()} and not {sha256.lower()}"
    return None


def fetch(
    sources: Sequence[str],
    target: Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    progress: Progress = silent,
    timeout: float = 30.0,
    attempts: int = 4,
    pause: float = 1.0,
) -> Path:
    """Fetch ``target`` from the first source that delivers it; a file that is there already is not fetched.

    Args:
        sources: see `addresses`; best first, but the one that a part is of comes before.
        target: what the file will be called; its folder is made.
        sha256: checksum in hexadecimal, where known.
        size: number of bytes, where known.
        progress: called with the bytes that are there and their number, where the server says it.
        timeout: seconds without a byte before a connection counts as broken.
        attempts: failures in a row before a mirror is given up.
        pause: seconds before the second attempt; doubled for each further one.

    Raises:
        FetchError: no mirror delivered; one sentence with each reason and the place to put the file by hand.
        genie_dg.files.Busy: another process fetches this file.
    """
    urls = [url for source in sources for url in addresses(source)]
    part = _Part(target.with_name(target.name + ".part"))

    def retry(url: str) -> None:
        """Transfer while there is hope; an attempt that brought bytes starts the count anew."""
        failures = 0  # urllib3's Retry repeats requests only; a body that breaks off must be resumed
        while True:
            before = part.length()
            try:
                return _transfer(url, part, size, timeout, progress)
            except _Failure as failure:
                failures = 1 if part.length() > before else failures + 1
                if not failure.again or failures >= attempts:
                    raise
                time.sleep(min(max(failure.wait, pause * 2 ** (failures - 1)), _LONGEST_PAUSE))

    with lock(target.with_name(f".{target.name}.lock"), f"fetches {target}"):
        if target.exists():
            if problem := _problem(target, sha256, size):
                raise FetchError(f"{target} is there already but {problem}; remove it and try again.")
            return target
        reasons = []
        for url in sorted(urls, key=lambda url: url != part.note()[0]):
            try:
                retry(url)
                if problem := _problem(part.path, sha256, size):
                    raise _Failure(f"{problem}, kept as {part.rename(target.name + '.bad').name}")
                return part.rename(target.name)
            except _Failure as failure:
                reasons.append(f"{url}: {failure}")
    raise FetchError(
        f"{target.name} could not be fetched ({'; '.join(reasons) or 'no source was given'}); "
        f"download it by hand, put it at {target} and try again."
    )
