"""A web page on this machine: drop a picture, see the classes and the nearest training pictures.

The server listens on 127.0.0.1 only and answers requests that name this machine as their host, so no other page
in the browser can read what it says. It opens no file that a request names: the page's own three files have
fixed names and training pictures are asked for by number.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock, Thread
from typing import Any

from genie_dg import __version__
from genie_dg.check import InputError
from genie_dg.data.domains import DataError, decode_bytes

from .model import Model
from .nearest import Examples
from .pictures import thumbnail

HOST = "127.0.0.1"
MOST_BYTES = 20 * 2**20
"""Of a picture that is sent."""
MOST_PIXELS = 40_000_000
SIDE = 160
"""Of the training pictures on the page, in pixels."""
SHOWN = 10
"""Classes that are shown at most."""
STATIC = {"/": ("page.html", "text/html"), "/page.js": ("page.js", "text/javascript")}
STATIC |= {"/page.css": ("page.css", "text/css")}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'"
)
POLICY += "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Refused(Exception):
    """A request that is answered with a sentence: status and text."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


LAST_ANSWERS = 5.0
"""Seconds that answers have when the server is closed."""


class Server(ThreadingHTTPServer):
    """Serves one model; ``serve_forever()`` starts it, ``shutdown()`` ends it.

    Args:
        model: what predicts.
        port: to listen on; 0 for any that is free.
        examples: an index of training pictures, where the page is to show the nearest ones.
    """

    daemon_threads = True

    def __init__(self, model: Model, port: int, examples: Examples | None = None) -> None:
        self.model, self.examples, self.one_at_a_time = model, examples, Lock()
        self._answering: list[Thread] = []
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"Port {port} of {HOST} cannot be used ({error}); name another --port.") from error

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, which `server_close` knows of."""
        thread = Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._answering = [*(one for one in self._answering if one.is_alive()), thread]
        thread.start()

    def server_close(self) -> None:
        """Close, and give answers that are under way a moment.

        Python ends the process for a thread that it stops inside torch ("terminate called without an active
        exception"), so that Ctrl-C right after an answer looked like a crash.
        """
        super().server_close()
        for thread in self._answering:
            thread.join(LAST_ANSWERS / len(self._answering))

    def predict(self, data: bytes) -> dict[str, Any]:
        """What the page shows of a picture."""
        picture = decode_bytes(data, "The picture", MOST_PIXELS)
        with self.one_at_a_time:
            images = self.model.normalised(self.model.sample(picture)[None])
            logits, features = self.model.logits_and_features(images)
        (prediction,) = self.model.ranked(logits)
        near = [] if self.examples is None else self.examples.nearest(features[0])
        shown = [{"name": name, "probability": value} for name, value in prediction.top(SHOWN)]
        return {"classes": shown, "nearest": [asdict(one) for one in near]}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    server_version = f"genie-dg/{__version__}"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, work: Callable[[], None]) -> None:
        try:
            if self.headers.get("Host", "") not in self._hosts():
                raise Refused(HTTPStatus.FORBIDDEN, f"This server answers on {self.server.address} only.")
            work()
        except Refused as refusal:
            self.close_connection = True  # what the client still sends is not read
            self._json({"problem": str(refusal)}, refusal.status)
        except DataError as problem:
            self._json({"problem": str(problem)}, HTTPStatus.UNPROCESSABLE_ENTITY)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the reader has gone

    def _hosts(self) -> set[str]:
        return {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}

    def _get(self) -> None:
        if self.path in STATIC:
            name, kind = STATIC[self.path]
            page = files("genie_dg.inference").joinpath("web", name).read_bytes()
            self._send(page, f"{kind}; charset=utf-8")
        elif self.path == "/model":
            examples = self.server.examples
            count = 0 if examples is None else len(examples)
            self._json({"lines": self.server.model.describe().splitlines(), "examples": count})
        elif self.path.startswith("/example/"):
            self._send(self._example(self.path.removeprefix("/example/")), "image/jpeg")
        else:
            raise Refused(
                HTTPStatus.NOT_FOUND, f"There is nothing at this address; open {self.server.address}."
            )

    def _example(self, number: str) -> bytes:
        samples = [] if self.server.examples is None else self.server.examples.samples
        if not (number.isascii() and number.isdigit() and len(number) < 10 and int(number) < len(samples)):
            raise Refused(HTTPStatus.NOT_FOUND, "There is no example of this number.")
        domain, index = samples[int(number)]
        file = io.BytesIO()
        thumbnail(domain.read(index), SIDE).save(file, "JPEG", quality=85)
        return file.getvalue()

    def _post(self) -> None:
        if self.path != "/predict":
            raise Refused(HTTPStatus.NOT_FOUND, "Pictures are sent to /predict.")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "The length of the picture was not given.")
        if len(length) > 12 or int(length) > MOST_BYTES:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The picture is larger than {MOST_BYTES // 2**20} MB; make it smaller.",
            )
        self._json(self.server.predict(self.rfile.read(int(length))))

    def _json(self, data: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(data).encode("utf-8"), "application/json", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the person who started the server."""
