"""Show a page on this machine: drop a picture, see what a model says and the nearest training pictures."""

from __future__ import annotations

import argparse

from genie_dg.arguments import path_text, whole
from genie_dg.check import InputError

from ._shared import add_model, progress_bar, read_labelled, read_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the port, and the training pictures to show."""
    add_model(parser)
    parser.add_argument(
        "--port", type=whole(0, 65535), default=8000, help="on 127.0.0.1; 0 for any (default: %(default)s)"
    )
    parser.add_argument(
        "--examples",
        type=path_text,
        metavar="DATA",
        help="training pictures (a folder <domain>/<class>/<picture>, or the name of a set), of which the page "
        "shows the nearest by the model's features",
    )
    parser.add_argument(
        "--root", type=path_text, metavar="FOLDER", help="for published sets, the folder that holds them"
    )


def run(arguments: argparse.Namespace) -> int:
    """Load, index, serve until Ctrl-C."""
    if arguments.root is not None and arguments.examples is None:
        raise InputError("--root is where --examples are; give both, or leave it out.")
    model = read_model(arguments)
    if model.encoding is not None:
        raise InputError("The page is for pictures, and this model is of a table; use genie-dg predict.")
    from genie_dg.inference.serve import MOST_EXAMPLES, Examples, Server

    examples = None
    if arguments.examples:
        data = read_labelled(arguments.examples, arguments.root, model)
        with progress_bar("looking at examples", min(MOST_EXAMPLES, len(data))) as advance:
            examples = Examples(model, data, progress=advance)
        print(f"{len(examples)} of {examples.total} pictures as examples.")
    server = Server(model, arguments.port, examples)
    print(f"Open {server.address} in a browser; Ctrl-C ends it.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("\nStopped.")
    finally:
        server.server_close()
    return 0
