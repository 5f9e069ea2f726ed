"""Print the versions, devices and tools that matter to genie-dg."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This verb takes no arguments."""


def facts() -> dict[str, str]:
    """Everything the verb prints, in order."""
    import os
    import platform
    import shutil
    import sys

    import torch

    from genie_dg import __version__

    devices = [
        "cpu",
        *(f"cuda:{k} ({torch.cuda.get_device_name(k)})" for k in range(torch.cuda.device_count())),
    ]
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    compiler = shutil.which(os.environ.get("CXX") or usual)  # as torch looks for it
    return {
        "genie-dg": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "devices": ", ".join([*devices, *(["mps"] if torch.backends.mps.is_available() else [])]),
        "C++ compiler": compiler or "none found: fused=True on a CPU needs one; install it or set CXX",
    }


def run(arguments: argparse.Namespace) -> int:
    """Print the facts, one on a line."""
    for name, value in facts().items():
        print(f"{name:<12}  {value}")
    return 0
