"""The command in a process of its own, and what a refusal looks like."""

from __future__ import annotations

import os
import subprocess
import sys


def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``genie-dg`` in a process of its own."""
    command = [sys.executable, "-m", "genie_dg.cli.main", *words]
    surroundings = {**os.environ, "PYTHONIOENCODING": "utf-8", **variables}
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", timeout=300, env=surroundings, check=False
    )


def one_sentence(text: str) -> bool:
    return text.startswith("genie-dg: ") and text.count("\n") == 1 and text.rstrip()[-1] in ".?"
