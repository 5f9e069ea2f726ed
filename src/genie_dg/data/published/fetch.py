"""Fetch one file with pooch from the first mirror that has it; a transfer that broke off is resumed.

Pooch retries, compares the checksum, and gives the file its name once it is whole. What pooch has no word for
is the resuming: the bytes that have arrived stay in a ``.part`` file, which is named after the address and the
version that the server states, so that a file that has changed is never joined to an old part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from genie_dg.check import MissingPackage

from ..domains import Advance, DataError, silent
from .catalog import SourceFile

Bar: TypeAlias = "Callable[[str, int | None], AbstractContextManager[Advance]]"
"""Opens a progress bar for a piece of work and its size, where that is known; it is advanced by steps."""

_RETRIES = 3
_TIMEOUT = 30.0
"""Seconds without a byte before a connection counts as broken."""


class FetchError(DataError):
    """The file could not be fetched; the message names each mirror with its reason."""


def no_bar(what: str, total: int | None) -> AbstractContextManager[Advance]:
    """A `Bar` that shows nothing."""
    return nullcontext(silent)


def address_of(mirror: str) -> str:
    """The address of a mirror: an http address is itself, ``drive:<id>`` is a file on Google Drive.

    >>> address_of("drive:1a")
    'https://drive.usercontent.google.com/download?id=1a&confirm=t'
    """
    if not mirror.startswith("drive:"):
        return mirror
    return f"https://drive.usercontent.google.com/download?id={mirror.removeprefix('drive:')}&confirm=t"


def fetch(file: SourceFile, target: Path, bar: Bar = no_bar) -> Path:
    """Fetch ``target`` from the first mirror that delivers it; a good file that is there is not fetched again.

    Args:
        file: its mirrors, and its checksum where that is known.
        target: what the file will be called; its folder is made.
        bar: shows the progress.

    Raises:
        FetchError: no mirror delivered; one sentence with each reason and the place to put the file by hand.
    """
    try:
        import pooch  # type: ignore[import-untyped]
        from requests import RequestException
    except ImportError as error:
        raise MissingPackage(
            f'Downloads need {error.name}, not installed here; run pip install "genie-dg[bench]" and try again.'
        ) from error
    pooch.get_logger().setLevel("ERROR")
    reasons = []
    for url in map(address_of, file.mirrors):
        store = pooch.create(
            target.parent,
            "",
            registry={target.name: file.sha256},
            urls={target.name: url},
            retry_if_failed=_RETRIES,
        )
        try:
            store.fetch(target.name, downloader=_ResumingDownloader(target, bar))
            return target
        except (RequestException, ValueError) as error:  # a wrong checksum is a ValueError
            reasons.append(f"{url}: {' '.join(str(error).split())}")
    raise FetchError(
        f"{target.name} could not be fetched ({'; '.join(reasons)}); download it by hand, put it at {target} "
        "and run the same command again."
    )


@dataclass(frozen=True)
class _ResumingDownloader:
    """What pooch calls to fetch an address: goes on where an earlier call for the same version broke off."""

    target: Path
    bar: Bar

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        with _answer(url) as response:
            version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
            size = response.headers.get("Content-Length")
            name = hashlib.sha256(f"{url} {version}".encode()).hexdigest()[:12]
            part = self.target.with_name(f"{self.target.name}.{name}.part")
            total = int(size) if size else None
            start = part.stat().st_size if version and part.is_file() else 0
            if not start:
                self._receive(response, part, total)
        if start and start != total:
            with _answer(url, {"Range": f"bytes={start}-", "If-Range": version}) as response:
                self._receive(response, part, total)
        part.replace(output_file)

    def _receive(self, response: Any, part: Path, total: int | None) -> None:
        """Write what arrives behind the part, or over it where the server sends the whole file again."""
        from requests import ConnectionError

        whole = response.status_code != 206
        with (
            part.open("wb" if whole else "ab") as file,
            self.bar(f"fetch {self.target.name}", total) as advance,
        ):
            advance(file.tell())
            for data in response.iter_content(2**18):
                file.write(data)
                advance(len(data))
            length = file.tell()
        if total is not None and length != total:
            raise ConnectionError(f"it sent {length:,} of {total:,} bytes")


@contextmanager
def _answer(url: str, headers: dict[str, str] | None = None) -> Any:
    """The response to a request; an error or a web page in place of the file is refused."""
    import requests

    headers = {"User-Agent": "genie-dg", "Accept-Encoding": "identity", **(headers or {})}
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        response.raise_for_status()
        if response.headers.get("Content-Type", "").startswith("text/html"):
            raise requests.RequestException("it sends a web page and not the file")
        yield response
