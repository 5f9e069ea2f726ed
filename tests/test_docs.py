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
from genie_dg.diagnostics._isolation import own_randomness

ROOT = Path(__file__).parent.parent


PACKAGE = Path(genie_dg.__file__).parent


def with_examples() -> list[str]:
    """Every module whose text has an example."""
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = ["genie_dg", *path.relative_to(PACKAGE).with_suffix("").parts]
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def test_examples_are_looked_for_everywhere() -> None:
    names = with_examples()
    assert len(names) > 70
    assert {"genie_dg.check", "genie_dg.optim.genie", "genie_dg.bench.engines._ray_task"} <= set(names)


@pytest.mark.parametrize("name", with_examples())
def test_docstring_examples(name: str) -> None:
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.ELLIPSIS)
    assert tried > 0
    assert failed == 0


def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every python block, in order, in one namespace with a model and a loss."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks
    model = torch.nn.Linear(4, 2)
    before = model.weight.detach().clone()
    space = {"model": model, "loss": model(torch.randn(3, 4)).square().mean()}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), space)
    assert not torch.equal(model.weight, before)


def test_the_guide_to_measuring_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks are one program; the log it writes ends up in the current folder."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "measure.md").read_text(), flags=re.S)
    assert len(blocks) >= 4
    space: dict[str, object] = {}
    with own_randomness(0):
        for block in blocks:
            exec(compile(block, "measure.md", "exec"), space)
    assert len((tmp_path / "osgr.jsonl").read_text().splitlines()) == 3


def test_the_guide_to_jax_runs() -> None:
    """The first block trains, the second changes a rate by hand."""
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "jax.md").read_text(), flags=re.S)
    space: dict[str, object] = {}
    exec(compile(first, "jax.md", "exec"), space)
    assert float(space["loss"](space["params"])) < 1.0  # type: ignore[operator]  # 8 before the first step
    exec(compile(second, "jax.md", "exec"), space)


def test_the_guide_to_data_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "data.md").read_text(), flags=re.S)
    assert len(blocks) == 2
    space: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "data.md", "exec"), space)
    assert space["training"].state_dict() == {"step": 1}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("file", "count"),
    [("optimizers.md", 4), ("backbones.md", 4), ("algorithms.md", 2), ("learning_rate.md", 1)],
)
def test_the_guides_to_the_registries_run(
    file: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / file).read_text(), flags=re.S)
    assert len(blocks) >= count
    space: dict[str, object] = {}
    with own_randomness(0):
        for block in blocks:
            exec(compile(block, file, "exec"), space)


def test_other_libraries_find_genie_by_name() -> None:
    """The real timm and pytorch_optimizer; what they registered here is taken out again."""
    text = (ROOT / "docs" / "use_in_your_loop.md").read_text()
    section = text[text.index("## By name") : text.index("## An existing DomainBed")]
    in_timm, in_pytorch_optimizer = re.findall(r"```python\n(.*?)```", section, flags=re.S)
    space: dict[str, Any] = {}
    exec(compile(in_timm, "use_in_your_loop.md", "exec"), space)
    try:
        assert "genie" in space["timm"].optim.list_optimizers()
        decays = [(len(group["params"]), group["weight_decay"]) for group in space["optimizer"].param_groups]
        assert decays == [(4, 0.0), (2, 1e-4)]  # biases and the norm first, without decay
        exec(compile(in_pytorch_optimizer, "use_in_your_loop.md", "exec"), space)
        assert isinstance(space["optimizer"], genie_dg.GENIE)
        assert space["optimizer"].defaults["lr"] == 0.015
    finally:
        space["default_registry"]._optimizers.pop("genie")
        space.get("OPTIMIZERS", {}).pop("genie", None)


def test_the_files_in_the_guide_to_sweeps_are_accepted(tmp_path: Path) -> None:
    from genie_dg.protocols.registry import load_protocol
    from genie_dg.protocols.sweep import load_sweep

    sweep, protocol = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "benchmark.md").read_text(), flags=re.S)
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


def test_readme_starts_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    first = text.index("make demo")
    assert first < text.index("make test") < 900


DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"]
DOCUMENTS += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("file", DOCUMENTS)
def test_relative_links_lead_somewhere(file: str) -> None:
    here = ROOT / file
    for target in re.findall(r"\]\(([^)#]+)\)", here.read_text()):
        if "://" not in target:
            assert (here.parent / target).exists(), target


def test_the_pages_say_which_algorithms_several_processes_share() -> None:
    from genie_dg.algorithms.registry import ALGORITHMS

    alone = [row.name for row in ALGORITHMS.values() if row.one_process]
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    said = f"All of them but {', '.join(alone)} can be shared by" if alone else "All of them can be shared by"
    assert said in page
    if alone:
        assert "of those here none has one" not in (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")


def test_the_page_on_domainbed_has_every_algorithm_as_its_row_says() -> None:
    from genie_dg.algorithms.registry import ALGORITHMS
    from genie_dg.cli.list import agreement

    page = (ROOT / "docs" / "domainbed.md").read_text(encoding="utf-8")
    lines = []
    for row in ALGORITHMS.values():
        how, what = agreement(row)
        lines.append(f"| {row.name} | {how.rstrip(':.').removesuffix(', but')} | {what} |")
    assert "\n".join(lines) in page
