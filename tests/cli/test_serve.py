"""``genie-dg serve`` as a process: it says where it is, answers, and ends with Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request

from tests.inference.conftest import PictureRun


def test_it_serves_until_it_is_interrupted(picture_run: PictureRun) -> None:
    command = [sys.executable, "-m", "genie_dg.cli.main", "serve", str(picture_run.folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert address is not None, said
        with urllib.request.urlopen(f"{address[0]}model", timeout=60) as answer:
            assert "lines" in json.load(answer)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""
