"""What the documents show is run: docstring examples and the README's code."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import genie_dg
from genie_dg._streams import own_randomness
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.protocols.registry import load_protocol
from genie_dg.protocols.sweep import load_sweep

from .source_tree import REPOSITORY, modules

ROOT = REPOSITORY
WITH_EXAMPLES = [name for name, module in modules().items() if ">>> " in module.text]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples(name: str) -> None:
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.ELLIPSIS)
    assert tried > 0
    assert failed == 0


def blocks_of(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.S)


def run(page: str, space: dict[str, Any], blocks: list[str] | None = None) -> dict[str, Any]:
    """Run the blocks of a page in order, in one namespace, which is returned."""
    with own_randomness(0):
        for block in blocks or blocks_of(page):
            exec(compile(block, page, "exec"), space)
    return space


def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace with a model and a loss."""
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Linear(4, 2)
    before = model.weight.detach().clone()
    run("README.md", {"model": model, "loss": model(torch.randn(3, 4)).square().mean()})
    assert not torch.equal(model.weight, before)


def osgr_is_logged(space: dict[str, Any]) -> bool:
    return len(Path("osgr.jsonl").read_text().splitlines()) == 3


GUIDES: list[tuple[str, int, Any]] = [
    ("measure.md", 4, osgr_is_logged),
    ("jax.md", 2, lambda space: float(space["loss"](space["params"])) < 1.0),  # 8 before the first step
    ("data.md", 2, lambda space: space["training"].step == 1),
    ("optimizers.md", 4, None),
    ("backbones.md", 4, None),
    ("algorithms.md", 2, None),
    ("learning_rate.md", 1, None),
]
"""Pages whose blocks are one program, how many blocks each has at least, and what holds in the end."""


@pytest.mark.parametrize(("page", "count", "holds"), GUIDES, ids=[page for page, *_ in GUIDES])
def test_the_guides_run(
    page: str, count: int, holds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(blocks_of(f"docs/{page}")) >= count
    space = run(f"docs/{page}", {})
    assert holds is None or holds(space)


def test_other_libraries_find_genie_by_name() -> None:
    """The real timm and pytorch_optimizer; what they registered here is taken out again."""
    text = (ROOT / "docs" / "use_in_your_loop.md").read_text()
    section = text[text.index("## By name") : text.index("## An existing DomainBed")]
    in_timm, in_pytorch_optimizer = re.findall(r"```python\n(.*?)```", section, flags=re.S)
    space = run("use_in_your_loop.md", {}, [in_timm])
    try:
        assert "genie" in space["timm"].optim.list_optimizers()
        decays = [(len(group["params"]), group["weight_decay"]) for group in space["optimizer"].param_groups]
        assert decays == [(4, 0.0), (2, 1e-4)]  # biases and the norm first, without decay
        run("use_in_your_loop.md", space, [in_pytorch_optimizer])
        assert isinstance(space["optimizer"], genie_dg.GENIE)
        assert space["optimizer"].defaults["lr"] == 0.015
    finally:
        space["default_registry"]._optimizers.pop("genie")
        space.get("OPTIMIZERS", {}).pop("genie", None)


def test_the_files_in_the_guide_to_sweeps_are_accepted(tmp_path: Path) -> None:

    sweep, protocol = blocks_of("docs/benchmark.md", "toml")
    (tmp_path / "sweep.toml").write_text(sweep)
    (tmp_path / "protocol.toml").write_text(protocol)
    assert load_sweep(tmp_path / "sweep.toml").trials == 3
    assert load_protocol(tmp_path / "protocol.toml").steps_of("PACS") == 1001


@pytest.mark.slow
def test_the_example_draws_its_figure(tmp_path: Path) -> None:
    script = ROOT / "examples" / "osgr_curves.py"
    assert len(script.read_text().splitlines()) <= 40
    command = [sys.executable, str(script), str(tmp_path), "6"]
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    subprocess.run(command, check=True, timeout=300, env=environment)
    assert (tmp_path / "osgr.png").stat().st_size > 10_000
    rows = (tmp_path / "theorem_osgr.csv").read_text().splitlines()[1:]
    assert {row.split(",")[0] for row in rows} == {"SGD", "Adam", "M-SVAG", "GENIE"}


DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"]
DOCUMENTS += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("file", DOCUMENTS)
def test_relative_links_lead_somewhere(file: str) -> None:
    here = ROOT / file
    for target in re.findall(r"\]\(([^)#]+)\)", here.read_text()):
        if "://" not in target:
            assert (here.parent / target).exists(), target


def test_the_pages_say_which_algorithms_several_processes_share() -> None:

    alone = [row.name for row in ALGORITHMS.values() if row.one_process]
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    said = f"All of them but {', '.join(alone)} can be shared by" if alone else "All of them can be shared by"
    assert said in page
    if alone:
        assert "of those here none has one" not in (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")


def test_the_page_on_domainbed_has_every_algorithm_as_its_row_says() -> None:

    page = (ROOT / "docs" / "domainbed.md").read_text(encoding="utf-8")
    lines = []
    for row in ALGORITHMS.values():
        how = "differs" if row.differs else "not in DomainBed"
        if row.domainbed is not None:
            how = f"to {row.domainbed:.0e}"
        lines.append(f"| {row.name} | {how} | {row.differs} |")
    assert "\n".join(lines) in page
