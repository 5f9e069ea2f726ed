"""Print the versions, devices and tools that matter to genie-dg."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This verb takes no arguments."""


def find_compiler() -> str | None:
    """The C++ compiler that torch would use on this CPU: $CXX, else the usual one of the system."""
    import os
    import shutil
    import sys

    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return shutil.which(os.environ.get("CXX") or usual)


def devices() -> list[str]:
    """What torch can compute on here, the CPU first."""
    import torch

    names = ["cpu"]
    names += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return names


def facts() -> dict[str, str]:
    """Everything the verb prints, in order."""
    import platform

    import torch

    from genie_dg import __version__

    return {
        "genie-dg": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "devices": ", ".join(devices()),
        "C++ compiler": find_compiler() or "none found: fused=True on a CPU needs one; install it or set CXX",
    }


def run(arguments: argparse.Namespace) -> int:
    """Print the facts, one on a line."""
    table = facts()
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:<{width}}  {value}")
    return 0
