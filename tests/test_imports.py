"""Who may import whom inside the package, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import genie_dg

ROOT = Path(genie_dg.__file__).parent
SISTERS = {"optim", "diagnostics", "data", "models", "algorithms", "protocols"}
ALLOWED: dict[str, set[str]] = {
    **{sister: set() for sister in SISTERS},
    "bench": SISTERS | {"results"},
    "results": set(),
    "report": {"results"},
    "paper": SISTERS | {"bench", "results", "report"},  # the paper uses everything, and only cli uses it
    "cli": {"bench", "results", "report", "data", "paper"},
    "genie_dg": {"optim"},  # the package itself offers GENIE
    "plugins": {"algorithms", "data", "models", "optim"},  # one name for what a user's own row is made of
}
"""For each room the rooms it may import besides itself; everyone may import leaves, leaves nothing of ours."""

RE_EXPORTED = {"GENIE": "optim"}
"""Names of the package itself that stand for a room."""


def room_of(module: str) -> str:
    """The room of a dotted name; "genie_dg" is the package itself, and a leaf is its own name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "genie_dg"


def imported(source: str, module: str, is_package: bool) -> set[str]:
    """Full dotted names of everything of ours that a module imports, at any depth of its code."""
    package = module if is_package else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            start = ".".join(part for part in (base, node.module or "") if part)
            names |= {f"{start}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == "genie_dg"}


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """One line for each import that the arrows forbid."""
    own = room_of(module)
    found = []
    for name in sorted(imported(source, module, is_package)):
        other = RE_EXPORTED.get(room_of(name), room_of(name))
        is_room = other in ALLOWED and other != "genie_dg"
        if other == own or name == "genie_dg.__version__":
            continue
        if own not in ALLOWED or (is_room and other not in ALLOWED[own]):
            found.append(f"{module} imports {name}")
    return found


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["genie_dg", *path.relative_to(ROOT).with_suffix("").parts]
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def test_the_arrows_hold() -> None:
    found = []
    for module, path in modules():
        found += violations(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    assert found == []


def test_every_room_is_in_the_table() -> None:
    rooms = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= set(ALLOWED)
    assert {"optim", "data", "cli"} <= rooms


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("genie_dg.data.digits", "from genie_dg.optim.genie import GENIE"),
        ("genie_dg.data.digits", "from genie_dg import GENIE"),
        ("genie_dg.data.digits", "from genie_dg import optim"),
        ("genie_dg.data.digits", "from ..optim import genie"),
        ("genie_dg.data.digits", "from .. import models"),
        ("genie_dg.data.digits", "import genie_dg.diagnostics.gsnr as g"),
        ("genie_dg.optim.genie", "def f():\n    from genie_dg.data import digits"),
        ("genie_dg.optim.genie", "import genie_dg.bench.train"),
        ("genie_dg.report.curves", "from genie_dg.bench.train import train"),
        ("genie_dg.results.table", "from genie_dg.optim import genie"),
        ("genie_dg.bench.train", "from genie_dg.cli.main import main"),
        ("genie_dg", "from genie_dg.cli.main import main"),
        ("genie_dg._moments", "from genie_dg.optim.genie import GENIE"),
        ("genie_dg._moments", "from ._random import bits"),
    ],
)
def test_the_checker_sees_a_violation(module: str, source: str) -> None:
    assert len(violations(source, module, is_package=module == "genie_dg")) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("genie_dg.optim.genie", "from genie_dg import _random\nfrom genie_dg._moments import averaging"),
        ("genie_dg.optim.genie", "from ._update import step_loop\nfrom .. import _random\nimport torch.optim"),
        ("genie_dg.bench.assemble", "from genie_dg.data import digits\nfrom genie_dg.optim.genie import GENIE"),
        ("genie_dg.report.curves", "from genie_dg.results.store import load"),
        ("genie_dg.cli.main", "from genie_dg import __version__\nfrom genie_dg.bench.train import train"),
    ],
)
def test_the_checker_lets_the_allowed_pass(module: str, source: str) -> None:
    assert violations(source, module) == []


def loaded_by(statement: str) -> set[str]:
    """The modules that are loaded in a fresh interpreter after a statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return set(done.stdout.split())


def test_importing_optim_loads_torch_and_nothing_heavy() -> None:
    heavy = {"torchvision", "PIL", "matplotlib", "sklearn", "scipy", "rich", "ray", "triton"}
    heavy |= {"torch._dynamo", "torch._inductor"}
    loaded = loaded_by("import genie_dg.optim")
    assert "torch" in loaded
    assert loaded & heavy == set()


@pytest.mark.parametrize(
    "module",
    [
        "genie_dg",
        "genie_dg.cli.main",
        "genie_dg.plugins",
        *(f"genie_dg.{room}" for room in ("results", "report") if (ROOT / room / "__init__.py").exists()),
    ],
)
def test_these_load_no_torch(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert "torch" not in loaded


def test_a_loaded_module_would_be_seen() -> None:
    assert "torch" in loaded_by("from genie_dg import GENIE")
