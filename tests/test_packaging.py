"""The files around the package say what is there: Dockerfile, workflows, Makefile, mkdocs.yml."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from genie_dg.cli.main import build_parser, verb_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.M))
VARIABLES = dict(re.findall(r"^(\w+) [?:]= *(.*)$", MAKEFILE, flags=re.M))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of every instruction of the Dockerfile, with comments left out and lines joined."""
    kept = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(kept).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


def test_what_the_dockerfile_copies_exists_and_is_sent() -> None:
    rows = (ROOT / ".dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in rows if line.startswith("!")}
    copied = {source for word, rest in instructions() if word == "COPY" for source in rest.split()[:-1]}
    assert "*" in rows
    assert copied == sent
    assert all((ROOT / name).exists() for name in copied)
    # the build reads these of pyproject.toml
    assert {"pyproject.toml", "src", PROJECT["readme"], PROJECT["license"]["file"]} <= copied


def test_the_dockerfile_starts_the_demo_as_a_user_without_rights() -> None:
    last = dict(instructions())
    (program,), words = json.loads(last["ENTRYPOINT"]), json.loads(last["CMD"])
    assert program in PROJECT["scripts"]
    assert words == ["demo"]
    verb_of(words)
    build_parser().parse_args(words)
    assert last["USER"] != "root"


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [(name, job) for path in WORKFLOWS for name, job in yaml.safe_load(path.read_text())["jobs"].items()]


def test_the_workflows_run_make_targets_only() -> None:
    assert [name for name, _ in jobs()] == ["check", "test", "docs", "wheel"]
    for name, job in jobs():
        runs = [step["run"] for step in job["steps"] if "run" in step]
        uses = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", text) for text in uses)
        assert [step["with"]["cache"] for step in job["steps"] if "setup-python" in step.get("uses", "")] == [
            "pip"
        ]
        assert len(runs) == 1
        make, target, *settings = shlex.split(re.sub(r"\$\{\{.*?\}\}", "", runs[0]))
        assert (make, target) == ("make", name)
        assert target in TARGETS
        assert {text.split("=")[0] for text in settings} <= set(VARIABLES)


def test_the_workflows_test_the_oldest_torch_and_known_pythons() -> None:
    matrix = dict(jobs())["test"]["strategy"]["matrix"]
    assert matrix["torch"] == [VARIABLES["TORCH_torch25"], ""]
    pythons = [*matrix["python"], *(row["python"] for row in matrix["include"])]
    assert len(matrix["python"]) == 2
    assert all(f"Programming Language :: Python :: {version}" in PROJECT["classifiers"] for version in pythons)
    assert f">={pythons[0]}" == PROJECT["requires-python"]


TORCH_ALONE = """
import sys
from importlib.metadata import packages_distributions

own = {"genie_dg", "torch", "functorch", "torchgen", "triton", "sympy", "mpmath", "networkx", "jinja2"}
own |= {"markupsafe", "filelock", "fsspec", "typing_extensions", "setuptools", "_distutils_hack"}
missing = {name for name in packages_distributions() if name not in own and not name.startswith("nvidia")}


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
from genie_dg.cli.main import main

assert main(["--version"]) == 0
assert main(["--help"]) == 0
for words in (["train", "digits"], ["table", "runs"], ["list", "optimizers"], ["serve", "model.pt"]):
    assert main(words) == 2, words
"""


def test_with_torch_alone_the_command_line_answers() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TORCH_ALONE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("genie-dg: ")]
    assert len(said) == 4
    assert all(line.endswith('run pip install "genie-dg[bench]" and try again.') for line in said)
    assert "Traceback" not in done.stderr
