"""What was typed to start a run: ``launch.json`` in its folder. It is no part of what the run is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from genie_dg.files import read_whole, write_json

LAUNCH = "launch.json"


def note_launch(folder: Path, words: Sequence[str]) -> None:
    """Write the words of the command that starts a run, the program's name first; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / LAUNCH, {"command": list(words)})


def read_launch(folder: Path) -> tuple[str, ...]:
    """The words of the command that started a run, or none where they are not known."""
    try:
        command = json.loads(read_whole(folder / LAUNCH)).get("command")
    except (OSError, ValueError, AttributeError):  # it is for showing only
        return ()
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return ()
    return tuple(command)
