"""A web service around a model: python examples/web_service.py MODEL [PORT]; then send it pictures:

curl --data-binary @photo.jpg http://127.0.0.1:8000/
"""

import io
import json
import sys
from wsgiref.simple_server import make_server

from PIL import Image, UnidentifiedImageError

import genie_dg

MOST = 20 * 2**20  # bytes of a picture
model = genie_dg.load_model(sys.argv[1])


def service(request, respond):
    data = request["wsgi.input"].read(min(int(request.get("CONTENT_LENGTH") or 0), MOST))
    try:
        (answer,) = model.predict([Image.open(io.BytesIO(data)).convert("RGB")])
    except (UnidentifiedImageError, OSError):
        respond("422 Unprocessable Entity", [("Content-Type", "text/plain")])
        return [b"This is not a picture that can be decoded.\n"]
    respond("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(dict(answer.top(5))).encode() + b"\n"]


with make_server("127.0.0.1", int(sys.argv[2] if sys.argv[2:] else 8000), service) as server:
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
