"""A real web server on a free port, whose files can be told to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Served:
    """One file and how it is served; lists are used up, one entry for each request."""

    data: bytes
    etag: str | None = '"v1"'
    ranges: bool = True
    content_type: str = "application/octet-stream"
    says_length: bool = True
    statuses: list[int] = field(default_factory=list)
    break_after: list[int] = field(default_factory=list)
    pause: float = 0.0


class Web(ThreadingHTTPServer):
    """``files`` by path; ``asked`` remembers the path and the headers of each request."""

    daemon_threads = False  # closing waits for the threads, so that no socket is left open

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, Served] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.stopping = threading.Event()

    def serve(self, path: str, data: bytes, **how: Any) -> str:
        """Offer a file and return its address."""
        self.files[path] = Served(data, **how)
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def ranges(self, path: str) -> list[str | None]:
        """The Range header of each request for a path."""
        return [headers.get("Range") for asked, headers in self.asked if asked == path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what these tests are about; print nothing."""


class _Handler(BaseHTTPRequestHandler):
    server: Web

    def log_message(self, format: str, *args: Any) -> None:
        """Be silent."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers.items())))
        file = self.server.files.get(self.path)
        if file is None or file.statuses:
            self.send_error(file.statuses.pop(0) if file else 404)
            return
        self._send(file)

    def _send(self, file: Served) -> None:
        wanted, unless = self.headers.get("Range"), self.headers.get("If-Range")
        start = 0
        if wanted and file.ranges and unless == file.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(file.data) - 1}/{len(file.data)}")
        else:
            self.send_response(200)
        headers = {"ETag": file.etag, "Content-Type": file.content_type}
        if file.says_length:
            headers["Content-Length"] = str(len(file.data) - start)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        stop = start + file.break_after.pop(0) if file.break_after else len(file.data)
        step = 1 << 14 if file.pause else 1 << 20
        for at in range(start, stop, step):
            self.wfile.write(file.data[at : min(at + step, stop)])
            self.server.stopping.wait(file.pause)


@contextmanager
def running() -> Iterator[Web]:
    """A server in a thread of its own, gone with all its sockets at the end."""
    web = Web()
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield web
    finally:
        web.stopping.set()
        web.shutdown()
        web.server_close()
        thread.join()
