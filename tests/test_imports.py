"""Who may import whom inside the package, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import genie_dg

ROOT = Path(genie_dg.__file__).parent
LEAVES = {
    *("_c_library", "_constants", "_moments", "_options", "_random", "_streams", "_types"),
    *("registry", "search_space", "check", "arguments", "facts", "files", "runtime", "statistics"),
}
SISTERS = {"optim", "optax", "diagnostics", "data", "models", "algorithms", "protocols"}
ALLOWED: dict[str, set[str]] = {
    **{leaf: {"check", "_constants"} for leaf in LEAVES},
    **dict.fromkeys(SISTERS, LEAVES),
    "protocols": LEAVES | {"runs"},  # a protocol is rules that fill a RunConfig
    "runs": LEAVES,
    "results": LEAVES | {"runs"},
    "report": LEAVES | {"runs", "results"},
    # A model is the run's own algorithm, built and evaluated by the code that trained it; `best` names what
    # results select.
    "inference": LEAVES
    | {"runs", "results", "data", "bench.assemble", "bench.evaluate", "algorithms.algorithm"},
    "bench": LEAVES | SISTERS | {"runs"},
    # The paper names data and protocols; one figure and some claims train a bare network, without a run.
    "paper": LEAVES
    | {"bench", "results", "report", "diagnostics", "runs", "protocols", "data"}
    | {"models.classifier", "optim.genie", "optim.passes", "optim.registry"},
    "cli": LEAVES | SISTERS | {"runs", "bench", "results", "report", "paper", "inference"},
    "genie_dg": {"optim", "inference"},  # the package itself offers GENIE and load_model
    "plugins": LEAVES
    | {"algorithms", "data", "models", "optim", "bench.trackers.tracker"},  # what a user's own row is made of
    "__main__": {"cli"},
}
"""For each package, leaf or module of the root: what of ours it may import besides itself."""

CLI_AT_ONCE = LEAVES | {"bench.options"}
"""What a verb may import outside its functions; the rest is imported when it runs."""


@dataclass(frozen=True)
class Import:
    """One imported thing: its module, the name taken from it, and whether it is loaded at once."""

    module: str
    name: str
    at_once: bool

    @property
    def whole(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def target(self) -> str:
        """The module that is meant: a name that is a module, or the module that has the name."""
        return self.whole if self.name and path_of(self.whole) else self.module


def path_of(module: str) -> Path | None:
    """The file of one of our modules, or of the ``__init__`` of a package."""
    place = ROOT.joinpath(*module.split(".")[1:])
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in files if module.startswith("genie_dg") and file.exists()), None)


def is_package(module: str) -> bool:
    path = path_of(module)
    return path is not None and path.name == "__init__.py"


def imports(source: str, module: str) -> list[Import]:
    """Everything that a module imports, at any depth of its code."""
    return [
        one for node, at_once in nodes(ast.parse(source), at_once=True) for one in named(node, module, at_once)
    ]


def nodes(tree: ast.AST, at_once: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, each with whether importing the module runs it."""
    for child in ast.iter_child_nodes(tree):
        later = isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        later |= isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test) and child in tree.body
        yield child, at_once and not later
        yield from nodes(child, at_once and not later)


def named(node: ast.AST, module: str, at_once: bool) -> list[Import]:
    """What one node imports: a statement, or ``import_module`` with a text."""
    if isinstance(node, ast.Import):
        return [Import(alias.name, "", at_once) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        parts = (module if is_package(module) else module.rpartition(".")[0]).split(".")
        base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
        start = ".".join(part for part in (base, node.module or "") if part)
        return [Import(start, alias.name, at_once) for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
        texts = [x.value for x in node.args[:1] if isinstance(x, ast.Constant) and isinstance(x.value, str)]
        return [Import(text, "", at_once) for text in texts]
    return []


def top(module: str) -> str:
    """The package, leaf or module of the root that a module belongs to; "genie_dg" is the root itself."""
    return module.partition(".")[2].split(".")[0] or "genie_dg"


def among(module: str, allowed: set[str]) -> bool:
    """Whether a module is one of those that are allowed, or inside one."""
    inner = module.partition(".")[2]
    return any(inner == one or inner.startswith(f"{one}.") for one in allowed)


def violations(source: str, module: str) -> list[str]:
    """One line for each import that the rules forbid, with the rule."""
    lines = {}
    for one in imports(source, module):
        if rule := broken_rule(one, module):
            lines[f"{module} imports {one.whole}: {rule}"] = None
    return sorted(lines)


def broken_rule(one: Import, module: str) -> str:
    own = top(module)
    if one.module.split(".")[0] != "genie_dg":
        foreign = one.module.split(".")[0] not in sys.stdlib_module_names
        return "a verb imports libraries when it runs" if own == "cli" and one.at_once and foreign else ""
    if one.whole == "genie_dg.__version__":
        return ""
    if is_package(one.target):
        return "import its modules, not a package"
    if top(one.target) != own and not among(one.target, ALLOWED.get(own, set())):
        return f"{own} may not import {top(one.target)}"
    if path_of(one.target) is None:
        return "there is no such module"
    if own == "cli" and one.at_once and not among(one.target, CLI_AT_ONCE | {"cli"}):
        return "a verb imports what it needs when it runs"
    return "a private module of another package" if is_private_to_another(one.target, module) else ""


def is_private_to_another(target: str, module: str) -> bool:
    """Whether some part of a name starts with ``_`` and the module is not in the package that holds it."""
    parts = target.split(".")
    for depth, part in enumerate(parts):
        holder = ".".join(parts[:depth])
        if depth > 1 and part.startswith("_") and not f"{module}.".startswith(f"{holder}."):
            return True
    return False


def modules() -> list[tuple[str, Path]]:
    everything = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["genie_dg", *path.relative_to(ROOT).with_suffix("").parts]
        everything.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return everything


def test_the_rules_hold() -> None:
    broken = [
        line for module, path in modules() for line in violations(path.read_text(encoding="utf-8"), module)
    ]
    assert broken == []


def test_everything_has_a_rule() -> None:
    tops = {top(module) for module, _ in modules()}
    assert tops <= set(ALLOWED)
    assert LEAVES | SISTERS | {"runs", "bench", "results", "report", "paper", "cli", "plugins"} <= tops


@pytest.mark.parametrize(
    ("module", "source", "rule"),
    [
        ("genie_dg.data.digits", "from genie_dg.optim.genie import GENIE", "data may not import optim"),
        ("genie_dg.data.digits", "from ..optim import genie", "data may not import optim"),
        ("genie_dg.data.published.terra", "from ...optim.genie import GENIE", "data may not import optim"),
        ("genie_dg.data.digits", "from genie_dg import GENIE", "not a package"),
        ("genie_dg.data.digits", "from genie_dg import optim", "not a package"),
        ("genie_dg.data.digits", "from .. import models", "not a package"),
        ("genie_dg.data.digits", "import genie_dg.diagnostics.gsnr as g", "data may not import diagnostics"),
        ("genie_dg.data.digits", "from genie_dg.runs.config import RunConfig", "data may not import runs"),
        ("genie_dg.optim.genie", "def f():\n    from genie_dg.data import digits", "may not import data"),
        ("genie_dg.optim.genie", "class A:\n    def f(self):\n        import genie_dg.data.digits", "data"),
        ("genie_dg.optim.genie", "f = lambda: import_module('genie_dg.data.digits')", "may not import data"),
        ("genie_dg.optim.genie", "if TYPE_CHECKING:\n    import genie_dg.data.digits", "may not import data"),
        ("genie_dg.optim.genie", "import genie_dg.bench.train", "optim may not import bench"),
        ("genie_dg.optax.transform", "from genie_dg.optim.genie import GENIE", "optax may not import optim"),
        ("genie_dg.protocols.sweep", "from genie_dg.algorithms.registry import ALGORITHMS", "algorithms"),
        ("genie_dg.runs.record", "from genie_dg.results.frame import load", "runs may not import results"),
        ("genie_dg.runs.folder", "def f():\n    from genie_dg.optim.genie import GENIE", "import optim"),
        ("genie_dg.results.frame", "from genie_dg.optim import genie", "results may not import optim"),
        ("genie_dg.results.frame", "from genie_dg.bench.options import Job", "results may not import bench"),
        ("genie_dg.report.page", "from genie_dg.bench.train import train", "report may not import bench"),
        ("genie_dg.report.page", "from genie_dg.diagnostics.osgr import osgr", "may not import diagnostics"),
        ("genie_dg.inference.load", "from genie_dg.bench.train import train", "may not import bench"),
        ("genie_dg.bench.train", "from genie_dg.results.frame import load", "bench may not import results"),
        ("genie_dg.bench.train", "from genie_dg.cli.main import main", "bench may not import cli"),
        ("paper.tables", "from genie_dg.cli.main import main", "paper may not import cli"),
        ("paper.tables", "from genie_dg.algorithms.irm import IRM", "paper may not import algorithms"),
        ("paper.tables", "from genie_dg.optim.sam import SAM", "paper may not import optim"),
        ("genie_dg.plugins", "from genie_dg.bench.train import train", "plugins may not import bench"),
        ("genie_dg.optim.genie", "from genie_dg import plugins", "optim may not import plugins"),
        ("genie_dg", "from genie_dg.cli.main import main", "genie_dg may not import cli"),
        ("genie_dg._moments", "from genie_dg.optim.genie import GENIE", "_moments may not import optim"),
        ("genie_dg._moments", "from ._random import bits", "_moments may not import _random"),
        ("genie_dg.search_space", "from .registry import Registry", "search_space may not import registry"),
        ("genie_dg.check", "from .files import lock", "check may not import files"),
        ("genie_dg.bench.assemble", "from genie_dg.optim._update import new_weights", "a private module"),
        ("genie_dg.bench.assemble", "from genie_dg.optim import _update", "a private module"),
        ("genie_dg.bench.sweep", "from .engines._ray_files import ALL", "a private module"),
        ("genie_dg.bench.watch", "def f():\n    import genie_dg.diagnostics._functional", "a private module"),
        ("genie_dg.bench.watch", "from genie_dg.diagnostics import measure_osgr", "not a package"),
        ("genie_dg.bench.watch", "import genie_dg.diagnostics", "not a package"),
        ("genie_dg.data.published.terra", "from .. import open_data", "not a package"),
        ("genie_dg.bench.watch", "from genie_dg.bench.wacth import GROUPS", "there is no such module"),
        ("genie_dg.cli.train", "from genie_dg.bench.train import train", "when it runs"),
        ("genie_dg.cli.train", "class A:\n    from genie_dg.runs.record import Record", "when it runs"),
        (
            "genie_dg.cli.train",
            "try:\n    import torch\nexcept ImportError:\n    pass",
            "libraries when it runs",
        ),
        ("genie_dg.cli.train", "if TYPE_CHECKING:\n    pass\nelse:\n    from rich import box", "when it runs"),
    ],
)
def test_the_checker_sees_a_violation(module: str, source: str, rule: str) -> None:
    (line,) = violations(source, module)
    assert line.endswith(rule) or rule in line.rpartition(": ")[2]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("genie_dg.optim.genie", "from genie_dg import _random\nfrom genie_dg._moments import averaging"),
        ("genie_dg.optim.genie", "from ._update import step\nfrom .. import _random\nimport torch.optim"),
        ("genie_dg.optim", "from .genie import GENIE\nfrom . import sam"),
        ("genie_dg.files", "from .check import InputError"),
        ("genie_dg.protocols.sweep", "from genie_dg.runs.config import RunConfig"),
        ("genie_dg.bench.assemble", "from genie_dg.data import digits\nfrom genie_dg.optim.genie import GENIE"),
        ("genie_dg.bench.engines.ray", "from ._ray_files import ALL\nfrom ..options import Job"),
        ("genie_dg.bench.engines.ray", "from genie_dg.runs import folder as files"),
        ("genie_dg.report.page", "from genie_dg.results.frame import load"),
        ("paper.tables", "from genie_dg import __version__\nfrom genie_dg.optim.genie import GENIE"),
        ("genie_dg.cli.main", "from genie_dg import __version__, check\nfrom . import train\nimport argparse"),
        ("genie_dg.cli.train", "from genie_dg.bench.options import add_flags"),
        ("genie_dg.cli.train", "def run():\n    import torch\n    from genie_dg.bench.train import train"),
        ("genie_dg.cli.train", "if TYPE_CHECKING:\n    from rich import box"),
    ],
)
def test_the_checker_lets_the_allowed_pass(module: str, source: str) -> None:
    assert violations(source, module) == []


def loaded_by(statement: str) -> set[str]:
    """The modules that are loaded in a fresh interpreter after a statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return set(done.stdout.split())


HEAVY = {"torchvision", "PIL", "matplotlib", "sklearn", "scipy", "rich", "ray", "triton", "polars", "msgspec"}
HEAVY |= {"jinja2", "cv2", "timm", "torch._dynamo", "torch._inductor", "jax", "optax"}


def test_importing_optim_loads_torch_and_nothing_heavier() -> None:
    loaded = loaded_by("import genie_dg.optim")
    assert "torch" in loaded
    assert loaded & HEAVY <= loaded_by("import torch")  # torch 2.5 itself loads inductor


def test_importing_optax_loads_jax_and_no_torch() -> None:
    loaded = loaded_by("import genie_dg.optax")
    assert {"jax", "optax", "genie_dg.optax.transform"} <= loaded
    assert "torch" not in loaded


@pytest.mark.parametrize("module", ["genie_dg", "genie_dg.cli.main", "genie_dg.plugins"])
def test_these_load_nothing_heavy(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert loaded & (HEAVY | {"torch", "numpy"}) == set()


@pytest.mark.parametrize("package", ["runs", "results", "report", "protocols"])
def test_no_module_of_these_loads_torch(package: str) -> None:
    members = [module for module, _ in modules() if top(module) == package]
    loaded = loaded_by("\n".join(f"import {module}" for module in members))
    assert set(members) <= loaded
    assert "torch" not in loaded


def test_a_loaded_module_would_be_seen() -> None:
    assert "torch" in loaded_by("from genie_dg import GENIE")
