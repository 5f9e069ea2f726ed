"""The pages for practitioners are run: code against the real libraries, commands by the real parser.

Third-party libraries warn, and they leave processes, loggers and seeds behind. So every page runs in a process
of its own, with warnings as Python shows them by default.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from genie_dg.cli.main import build_parser, main, verb_of

ROOT = Path(__file__).parent.parent
PAGES = ("quickstart.md", "use_in_your_loop.md", "own_folder.md")


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """(language, text) of the fenced blocks of a page, in order; without languages, all of them."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs" / page).read_text(), flags=re.S | re.M)
    return [(kind, text) for kind, text in fenced if not languages or kind in languages]


def commands(page: str) -> list[list[str]]:
    """The words of every ``genie-dg`` line of a page, comments left out."""
    lines = [line for _, text in blocks(page, "sh", "") for line in text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("genie-dg ")]


def parse(words: list[str]) -> None:
    verb_of(words)
    build_parser().parse_args(words)


def run_python(script: str, folder: Path) -> str:
    """Run a script in a folder with one thread and without the internet; returns what it printed."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    environment = {**os.environ, **offline, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def as_program(words: list[str]) -> str:
    """A line of Python that runs a command and insists that it succeeds."""
    return f"from genie_dg.cli.main import main\nassert main({words!r}) == 0, {words!r}\n"


def program(page: str) -> str:
    """All blocks of a page as one program: Python as it is, TOML saved as sweep.toml, quick commands run.

    Runs stay in this process (``--engine here``) and not in a pool, whose processes would each load torch.
    Trainings with pretrained weights take minutes and are left out.
    """
    lines = []
    for kind, text in blocks(page, "python", "toml", "sh"):
        if kind == "python":
            lines.append(text)
        elif kind == "toml":
            lines.append(f"import pathlib\npathlib.Path('sweep.toml').write_text({text!r})\n")
        else:
            shown = [shlex.split(line, comments=True) for line in text.splitlines()]
            for words in shown:
                if words[0] == "genie-dg" and "--pretrained" not in words:
                    here = ["--engine", "here"] if words[1] == "sweep" else []
                    lines.append(as_program([*words[1:], *here]))
    return "\n".join(lines)


@pytest.mark.parametrize(
    "page",
    [*PAGES, "benchmark.md", "data.md", "algorithms.md", "optimizers.md", "extend.md", "learning_rate.md"],
)
def test_every_command_that_is_shown_is_one(page: str) -> None:
    for words in commands(page):
        parse(words)


def test_the_quickstart_runs(tmp_path: Path) -> None:
    """Install lines aside, everything on the page, in order: training, sweep, table, results in Python."""
    verbs = {words[0] for words in commands("quickstart.md")}
    assert verbs == {"train", "list", "sweep", "status", "table", "compare"}
    printed = run_python(program("quickstart.md"), tmp_path)
    assert "Chosen by validation: step" in printed
    assert "4 of 4 runs are done, 0 failed." in printed
    assert len(list((tmp_path / "runs").glob("*/done"))) == 4
    assert printed.count("| ERM       | genie     |") >= 2  # by the command and by the Python block


@pytest.mark.slow  # imports Lightning, Transformers and Accelerate in processes of their own
def test_the_page_about_loops_runs(tmp_path: Path) -> None:
    """Lightning, Transformers and Accelerate are the real ones; nothing is downloaded."""
    text = program("use_in_your_loop.md")
    libraries = {"lightning", "transformers", "accelerate"}
    printed = run_python(f"{text}\nimport sys\nprint(sorted({libraries} & set(sys.modules)))", tmp_path)
    assert str(sorted(libraries)) in printed
    assert printed.count("'trust': ") == 3  # gauges of each library's optimizer
    assert printed.count("{'loss': ") == 5  # five updates of the stand-in for DomainBed's class
    assert (tmp_path / "checkpoint.pt").is_file()


@pytest.mark.slow  # trains from the command line several times; the quick start does so in every run
def test_the_page_about_folders_runs(tmp_path: Path) -> None:
    printed = run_python(program("own_folder.md"), tmp_path)
    assert "Everything is as it should be." in printed
    assert "6 of 6 runs are done, 0 failed." in printed
    assert "genie" in (tmp_path / "table.md").read_text()
    right = re.search(r"(\d+) of 30 sketches are right", printed)
    (records,) = (tmp_path / "one").glob("*/records.jsonl")
    kept = [json.loads(line) for line in records.read_text().splitlines()]
    best = max(kept, key=lambda record: record["out_acc"][0] + record["out_acc"][1])
    assert right is not None  # the model that was read again is as right as the one that was saved
    assert int(right[1]) == round(24 * best["in_acc"][2] + 6 * best["out_acc"][2])


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # a notice of the theme about another program
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}
    api = (site / "api.html").read_text()
    names = "optim.genie.GENIE", "optim.swad.SWAD", "data.registry.open_data", "runs.config.RunConfig"
    assert all(f'id="genie_dg.{name}"' in api for name in names)
    assert ":math:" not in api
    assert ".. math::" not in api
    assert "<mi>&</mi>" not in api  # a formula of several lines is a table
    assert "fonts.googleapis.com" not in (site / "index.html").read_text()


def test_the_page_about_the_frame_runs(tmp_path: Path) -> None:
    """Its blocks are cells of one notebook; the runs are two short ones."""
    for optimizer in ("adam", "genie"):
        words = ["train", "digits", "--test-domain", "0", "--backbone", "mlp", "--steps", "5", "--every", "4"]
        assert main([*words, "--optimizer", optimizer, "--out", str(tmp_path / "runs")]) == 0
    cells = [text for _, text in blocks("results.md", "python")]
    assert len(cells) == 5
    printed = run_python("\n".join(cells), tmp_path)
    assert "ERM + genie" in printed
    assert "### digits: accuracy on the test domain" in printed
