"""Ask a server for a file: http and https only, and every way in which that can fail as one short reason."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import urllib.error
import urllib.request
from typing import IO, Any
from urllib.parse import urlsplit

from .domains import DataError

CHUNK = 1 << 18
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


class FetchError(DataError):
    """The file could not be fetched; the message names each mirror with its reason."""


class Failure(Exception):
    """Why one attempt failed, whether the same address may do better, and after how many seconds."""

    def __init__(self, reason: str, again: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.again = again
        self.wait = wait


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
            f"A source begins with {source[:8]!r}; allowed are http:// and https:// (no login) and drive:<id>."
        )
    return (source,)


class _WebOnly(urllib.request.HTTPRedirectHandler):
    """Redirects as usual, but never to ftp; urllib itself refuses file and data."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            fp.close()
            raise Failure("it redirects to an address that is neither http nor https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()  # build_opener would add file, ftp and data addresses
    opener.add_handler(urllib.request.ProxyHandler())
    opener.add_handler(urllib.request.HTTPHandler())
    opener.add_handler(urllib.request.HTTPSHandler())
    opener.add_handler(urllib.request.HTTPDefaultErrorHandler())
    opener.add_handler(urllib.request.HTTPErrorProcessor())
    opener.add_handler(_WebOnly())
    return opener


def ask(url: str, headers: dict[str, str], timeout: float) -> Any:
    """The open response to a GET. Status 416, which only a resumed transfer can meet, is a response as well."""
    headers = {"User-Agent": "genie-dg", **headers}
    try:
        return _opener().open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and "Range" in headers:
            return error
        with error:
            wait = error.headers.get("Retry-After", "")
            seconds = float(wait) if wait.isdecimal() else 0.0
            raise Failure(f"HTTP {error.code} {error.msg}", error.code in _TEMPORARY, seconds) from error
    except (OSError, http.client.HTTPException) as error:
        raise _lost(error) from error


def read(response: Any) -> bytes:
    """The next bytes that have come, at most `CHUNK`; empty at the end."""
    try:
        data: bytes = response.read1(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _lost(error) from error
    return data


def _lost(error: Exception) -> Failure:
    """The failure behind a network error; a name or port that does not exist is not tried again."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    final = isinstance(cause, (ConnectionRefusedError, ssl.SSLCertVerificationError, socket.gaierror))
    if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN:
        final = False
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return Failure(text, again=not final)


def page_title(head: bytes, content_type: str) -> str | None:
    """The title of a web page that came in place of a file, or None when a file came.

    >>> page_title(b"<!DOCTYPE html><title>Quota exceeded</title>", "")
    'Quota exceeded'
    """
    start = head[:512].lstrip().lower()
    if not (start.startswith((b"<!doctype html", b"<html")) or content_type.lower().startswith("text/html")):
        return None
    title = re.search(rb"<title>(.{1,80}?)</title>", head, re.IGNORECASE | re.DOTALL)
    return title.group(1).decode("utf-8", "replace").strip() if title else "without a title"
