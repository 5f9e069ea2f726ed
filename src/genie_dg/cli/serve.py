"""Show a page on this machine: drop a picture, see what a model says."""

from __future__ import annotations

import argparse

from genie_dg.arguments import whole
from genie_dg.check import InputError

from ._shared import add_model, read_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model and the port."""
    add_model(parser)
    text = "on 127.0.0.1; 0 for any (default: %(default)s)"
    parser.add_argument("--port", type=whole(0, 65535), default=8000, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Load, serve until Ctrl-C."""
    model = read_model(arguments)
    if model.encoding is not None:
        raise InputError("The page is for pictures, and this model is of a table; use genie-dg predict.")
    from genie_dg.inference.serve import Server

    server = Server(model, arguments.port)
    print(f"Open {server.address} in a browser; Ctrl-C ends it.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("\nStopped.")
    finally:
        server.server_close()
    return 0
