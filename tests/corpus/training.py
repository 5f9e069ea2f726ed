"""Train a fixed list of tiny runs and print digests, by which one sees whether training has changed.

The last digits depend on the processor, so the lines are compared on one machine, before and after a change::

    PYTHONPATH=OLD/src python -m tests.corpus.training > before.txt
    python -m tests.corpus.training > after.txt
    diff before.txt after.txt

Each line has what was trained, the run's name, and SHA-256 digests: of the records, of the final weights, and
where there are such, of the record of the averaged weights (SWAD) and of what the run was watched for.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MLP = "digits --test-domain 2 --backbone mlp --steps 7 --every 3 --batch-size 8"
CNN = "digits --test-domain 2 --backbone cnn --steps 4 --every 3 --batch-size 4"
RUNS = (
    f"{MLP} --optimizer sgd --set lr=0.1",
    f"{MLP} --optimizer adam --set lr=0.01 --dropout 0.5 --trial 1",
    f"{MLP} --optimizer sam --set rho=0.1",
    f"{MLP} --optimizer genie --set lr=1 --watch updates,osgr",
    f"{MLP} --optimizer adahessian --set lr=0.01",
    f"{MLP} --optimizer msvag --set lr=1 --watch osgr",
    f"{MLP} --optimizer gam",
    f"{MLP} --optimizer fad",
    f"{MLP} --optimizer adam --set lr=0.01 --precision bfloat16",
    f"{MLP} --optimizer genie --set lr=1 --precision bfloat16",
    f"{MLP} --optimizer adam --set lr=0.01 --swad",
    f"{MLP} --optimizer genie --set lr=1 --swad --algorithm CORAL",
    f"{MLP} --optimizer adam --set optimizer.lr=0.01 --algorithm DANN",
    f"{MLP} --optimizer genie --set optimizer.lr=1 --algorithm CDANN",
    f"{MLP} --optimizer adam --set lr=0.01 --algorithm MLDG",
    f"{MLP} --optimizer sam --algorithm IRM --set irm_penalty_anneal_iters=2",
    f"{MLP} --optimizer sgd --set lr=0.1 --algorithm Fish",
    f"{MLP} --optimizer adam --set lr=0.01 --algorithm Fishr --set penalty_anneal_iters=2",
    f"{MLP} --optimizer genie --set lr=1 --algorithm MIRO",
    f"{MLP} --optimizer adam --set lr=0.01 --algorithm Mixup --test-domain 4",
    f"{MLP} --optimizer adam --set lr=0.01 --algorithm SagNet",
    f"{CNN} --optimizer genie --set lr=1",
    f"{CNN} --optimizer adam --set lr=0.01 --precision bfloat16",
    f"{CNN} --optimizer adam --set lr=0.01 --algorithm ARM",
    f"coloured-{MLP} --optimizer adam --set lr=0.01 --algorithm VREx --set vrex_penalty_anneal_iters=2",
    "styleshapes --test-domain sketch --backbone mlp --steps 4 --every 3 --batch-size 4 --optimizer genie",
    "styleshapes --test-domain sketch --backbone cnn --steps 1 --every 1 --batch-size 4 --optimizer adam",
)


def trained(words: str, out: Path) -> Path:
    """Train one run; the folder it left."""
    from genie_dg.cli.main import main

    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = main(["train", *words.split(), "--keep", "last", "--out", str(out), "--device", "cpu"])
    if code:
        raise SystemExit(f"{words} ended with exit code {code}: {told.getvalue()}")
    (folder,) = out.iterdir()
    return folder


def tensors(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All tensors in nested mappings, with their names."""
    if hasattr(state, "detach"):
        yield name, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from tensors(value, f"{name}.{key}")


def digest_of_weights(path: Path) -> str:
    """Of names, types, shapes and bytes of all tensors, sorted by name; the outermost name is left out."""
    import torch

    digest, state = hashlib.sha256(), torch.load(path, map_location="cpu", weights_only=True)
    found = {name: x for part in state.values() for name, x in tensors(part)}
    for name, x in sorted(found.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(x.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    """One line for each run."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is there
    import torch

    import genie_dg

    torch.set_num_threads(1)
    print(f"genie-dg from {genie_dg.__file__}", file=sys.stderr)
    for words in RUNS:
        with tempfile.TemporaryDirectory() as out:
            folder = trained(words, Path(out))
            found = {"records": hashlib.sha256((folder / "records.jsonl").read_bytes()).hexdigest()}
            found["weights"] = digest_of_weights(folder / "model.pt")
            for name in ("swad.json", "watch.jsonl"):
                if (folder / name).exists():
                    found[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            told = " ".join(f"{key}={value}" for key, value in found.items())
            print(f"{words}: {folder.name} {told}", flush=True)


if __name__ == "__main__":
    main()
