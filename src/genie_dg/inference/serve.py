"""A web page on this machine: drop a picture, see the classes and the nearest training pictures.

The server listens on 127.0.0.1 only and answers requests that name this machine as their host, so no other page
in the browser can read what it says. It opens no file that a request names: the page's own three files have
fixed names and training pictures are asked for by number.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from genie_dg import __version__
from genie_dg.check import InputError
from genie_dg.data.domains import Advance, DataError, Domain, DomainSet, decode_bytes, silent

from .model import Model
from .pictures import thumbnail

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


MOST_EXAMPLES = 2000
"""Pictures in an index; of a larger set as many are taken, evenly."""


class Examples:
    """An index of pictures, by the features of a model.

    Args:
        model: whose features.
        data: the pictures.
        most: how many are taken at most.
        progress: called with the number of pictures done.
    """

    def __init__(
        self, model: Model, data: DomainSet, most: int = MOST_EXAMPLES, progress: Advance = silent
    ) -> None:
        every = [(domain, k) for domain in data.domains for k in range(len(domain))]
        chosen = np.unique(np.linspace(0, len(every) - 1, min(most, len(every))).round().astype(int))
        self.classes, self.total = data.classes, len(every)
        self.samples: list[tuple[Domain, int]] = []
        self.problems: list[str] = []
        rows = []
        for start in range(0, len(chosen), 32):
            some = [every[k] for k in chosen[start : start + 32]]
            samples = [sample for one in some if (sample := self._sample(model, *one)) is not None]
            if samples:
                rows.append(model.logits_and_features(model.normalised(torch.stack(samples)))[1])
            progress(len(some))
        if not rows:
            raise DataError(f"No picture of {data.name} can be read ({self.problems[0]}); name other examples.")
        self.features = normalize(torch.cat(rows).flatten(1))

    def _sample(self, model: Model, domain: Domain, index: int) -> Tensor | None:
        try:
            sample = model.sample(domain.read(index))
        except DataError as problem:
            self.problems.append(str(problem))
            return None
        self.samples.append((domain, index))
        return sample

    def __len__(self) -> int:
        return len(self.samples)

    def nearest(self, features: Tensor, count: int = 6) -> list[dict[str, Any]]:
        """The pictures whose features have the largest cosine with those of one picture, the nearest first.

        Each has its ``place`` in the index, ``domain``, ``label`` and ``cosine``.
        """
        cosines = self.features @ normalize(features.flatten(), dim=0)
        near = []
        for place in torch.argsort(cosines, descending=True, stable=True)[:count].tolist():
            domain, index = self.samples[place]
            about = {"domain": domain.name, "label": self.classes[int(domain.labels[index])]}
            near.append({"place": place, **about, "cosine": float(cosines[place])})
        return near


class _Refusal(Exception):
    """A request that is answered with a status and a sentence."""


class Server(ThreadingHTTPServer):
    """Serves one model; ``serve_forever()`` starts it, ``shutdown()`` ends it.

    Args:
        model: what predicts.
        port: to listen on; 0 for any that is free.
        examples: an index of training pictures, where the page is to show the nearest ones.
    """

    daemon_threads = False  # server_close waits for answers: Python would end in the middle of torch

    def __init__(self, model: Model, port: int, examples: Examples | None = None) -> None:
        self.model, self.examples, self.one_at_a_time = model, examples, Lock()
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
            images = self.model.normalised(self.model.sample(picture)[None])
            logits, features = self.model.logits_and_features(images)
        (prediction,) = self.model.ranked(logits)
        near = [] if self.examples is None else self.examples.nearest(features[0])
        shown = [{"name": name, "probability": value} for name, value in prediction.top(10)]
        return {"classes": shown, "nearest": near}


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
            if self.headers.get("Host", "") not in {
                f"{n}:{self.server.server_port}" for n in (HOST, "localhost")
            }:
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
            examples = self.server.examples
            count = 0 if examples is None else len(examples)
            self._json({"lines": self.server.model.describe().splitlines(), "examples": count})
        elif self.path.startswith("/example/"):
            self._send(self._example(self.path.removeprefix("/example/")), "image/jpeg")
        else:
            raise _Refusal(HTTPStatus.NOT_FOUND, f"There is nothing here; open {self.server.address}.")

    def _example(self, number: str) -> bytes:
        samples = [] if self.server.examples is None else self.server.examples.samples
        if not re.fullmatch("[0-9]{1,9}", number) or int(number) >= len(samples):
            raise _Refusal(HTTPStatus.NOT_FOUND, "There is no example of this number.")
        domain, index = samples[int(number)]
        file = io.BytesIO()
        thumbnail(domain.read(index), 160).save(file, "JPEG", quality=85)
        return file.getvalue()

    def _post(self) -> None:
        if self.path != "/predict":
            raise _Refusal(HTTPStatus.NOT_FOUND, "Pictures are sent to /predict.")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,12}", length) or int(length) > MOST_PICTURE_BYTES:
            sentence = (
                f"The picture must give its length, at most {MOST_PICTURE_BYTES // 2**20} MB; make it smaller."
            )
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
