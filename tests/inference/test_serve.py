"""The server as a program meets it: answers, limits and refusals."""

from __future__ import annotations

import http.client
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from genie_dg.inference.serve import MOST_PICTURE_BYTES, MOST_PIXELS, Server
from tests.data.pictures import KINDS, write


def ask(
    server: Server, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, answer.headers, data


def problem(answer: tuple[int, Any, bytes]) -> tuple[int, str]:
    return answer[0], json.loads(answer[2])["problem"]


@pytest.mark.parametrize(("name", "mode"), KINDS[:7])
def test_the_answer_is_that_of_predict(server: Server, tmp_path: Path, name: str, mode: str) -> None:
    path = write(tmp_path / name, 9, mode)
    status, _, body = ask(server, "POST", "/predict", path.read_bytes())
    assert status == 200
    (expected,) = server.model.predict(path)
    said = json.loads(body)
    assert [(one["name"], one["probability"]) for one in said["classes"]] == expected.top(10)


def test_the_page_and_its_pictures(server: Server) -> None:
    for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
        status, headers, body = ask(server, "GET", path)
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert len(body) > 300
    assert "trained on" in json.loads(ask(server, "GET", "/model")[2])["lines"][1]


@pytest.mark.parametrize(
    "path",
    [
        "/web/-1", "/web/../../etc/passwd", "/web/%2e%2e", "/../pyproject.toml",
        "/page.html", "/web/page.html", "//etc/passwd", "/web/\u0661".encode().decode("latin-1"),
        "/web/99999999999999999999", "/web/",
    ],
)  # fmt: skip
def test_nothing_else_is_there(server: Server, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest("GET", "/", skip_host=True)
    connection._buffer[0] = f"GET {path} HTTP/1.1".encode("latin-1")  # type: ignore[attr-defined]  # as it stands
    connection.putheader("Host", f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 404
    assert json.loads(answer.read())["problem"].endswith(".")
    connection.close()


def test_broken_pictures_get_a_sentence_and_the_server_goes_on(server: Server, tmp_path: Path) -> None:
    good = write(tmp_path / "a.jpg", 3).read_bytes()
    for body, words in (
        (b"", "is empty"),
        (b"GIF89a???", "cannot be decoded"),
        (good[:200], "cannot be decoded"),
    ):
        status, said = problem(ask(server, "POST", "/predict", body))
        assert status == 422
        assert words in said
        assert "0x" not in said  # no address of an object
    assert ask(server, "POST", "/predict", good)[0] == 200


def test_limits_of_bytes_and_pixels(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest("POST", "/predict")
    connection.putheader("Content-Length", str(MOST_PICTURE_BYTES + 1))
    connection.endheaders()  # and nothing is sent: the answer comes at once
    answer = connection.getresponse()
    assert answer.status == 413
    assert "at most 20 MB" in json.loads(answer.read())["problem"]
    connection.close()
    file = io.BytesIO()
    Image.new("1", (8000, MOST_PIXELS // 8000 + 1)).save(file, "PNG")
    assert len(file.getvalue()) < 100_000
    status, said = problem(ask(server, "POST", "/predict", file.getvalue()))
    assert status == 422
    assert "8000 x 5001 pixels, more than 40,000,000" in said


def test_a_picture_without_a_length_and_another_address_are_refused(server: Server) -> None:
    assert problem(ask(server, "POST", "/predict", None, Content_Length="x"))[0] == 413
    assert problem(ask(server, "POST", "/elsewhere", b"x"))[0] == 404
    status, said = problem(ask(server, "GET", "/model", None, Host="evil.example:80"))
    assert status == 403
    assert "answers on http://127.0.0.1" in said
    assert ask(server, "GET", "/model", None, Host=f"localhost:{server.server_port}")[0] == 200
