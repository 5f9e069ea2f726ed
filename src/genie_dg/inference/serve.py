"""A web page on this machine: drop a picture, see the classes.

The server listens on 127.0.0.1 only and answers requests that name this machine as their host, so no other page
in the browser can read what it says. It opens no file that a request names: the page's own three files have
fixed names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from typing import Any

from genie_dg import __version__
from genie_dg.check import InputError
from genie_dg.data.domains import DataError, decode_bytes

from .model import Model

HOST = "127.0.0.1"
MOST_PICTURE_BYTES = 20 * 2**20
"""Of a picture that is sent."""
MOST_PIXELS = 40_000_000
_STATIC = {"/": ("page.html", "text/html"), "/page.js": ("page.js", "text/javascript")}
_STATIC |= {"/page.css": ("page.css", "text/css")}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'"
)
_POLICY += "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
}


class _Refusal(Exception):
    """A request that is answered with a status and a sentence."""


class Server(ThreadingHTTPServer):
    """Serves one model; ``serve_forever()`` starts it, ``shutdown()`` ends it.

    Args:
        model: what predicts.
        port: to listen on; 0 for any that is free.
    """

    daemon_threads = False  # server_close waits for answers: Python would end in the middle of torch

    def __init__(self, model: Model, port: int) -> None:
        self.model, self.one_at_a_time = model, Lock()
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"Port {port} of {HOST} cannot be used ({error}); name another --port.") from error

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def predict(self, data: bytes) -> dict[str, Any]:
        """What the page shows of a picture."""
        picture = decode_bytes(data, "The picture", MOST_PIXELS)
        with self.one_at_a_time:
            (prediction,) = self.model.predict([picture])
        return {"classes": [{"name": name, "probability": value} for name, value in prediction.top(10)]}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    server_version = f"genie-dg/{__version__}"
    sys_version = ""
    timeout = 10  # of a client that sends nothing

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, work: Callable[[], None]) -> None:
        try:
            port = self.server.server_port
            if self.headers.get("Host", "") not in (f"{HOST}:{port}", f"localhost:{port}"):
                raise _Refusal(HTTPStatus.FORBIDDEN, f"This server answers on {self.server.address} only.")
            work()
        except _Refusal as refusal:
            self.close_connection = True  # what the client still sends is not read
            status, sentence = refusal.args
            self._json({"problem": sentence}, status)
        except DataError as problem:
            self._json({"problem": str(problem)}, HTTPStatus.UNPROCESSABLE_ENTITY)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the reader has gone

    def _get(self) -> None:
        if self.path in _STATIC:
            name, kind = _STATIC[self.path]
            page = files("genie_dg.inference").joinpath("web", name).read_bytes()
            self._send(page, f"{kind}; charset=utf-8")
        elif self.path == "/model":
            self._json({"lines": self.server.model.describe().splitlines()})
        else:
            raise _Refusal(HTTPStatus.NOT_FOUND, f"There is nothing here; open {self.server.address}.")

    def _post(self) -> None:
        if self.path != "/predict":
            raise _Refusal(HTTPStatus.NOT_FOUND, "Pictures are sent to /predict.")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,12}", length) or int(length) > MOST_PICTURE_BYTES:
            sentence = f"A picture must give its length, at most {MOST_PICTURE_BYTES // 2**20} MB."
            raise _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
        self._json(self.server.predict(self.rfile.read(int(length))))

    def _json(self, data: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(data).encode("utf-8"), "application/json", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the person who started the server."""
