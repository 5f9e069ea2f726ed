"""Who may import whom inside the package, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .source_tree import REPOSITORY, Import, Module, imports, modules

PACKAGE, PAPER = modules(), modules(REPOSITORY / "paper")
APART = {"plugins", "__main__"}
"""Modules of the root that are no leaves."""
LEAVES = {m.top for m in PACKAGE.values() if m.name.count(".") == 1 and not m.is_package} - APART
SISTERS = {"optim", "optax", "diagnostics", "data", "models", "algorithms", "protocols"}
ALLOWED: dict[str, set[str]] = {
    **dict.fromkeys(LEAVES | SISTERS | {"runs"}, LEAVES),
    "protocols": LEAVES | {"runs.config"},  # a protocol is rules that fill a RunConfig
    "results": LEAVES | {"runs"},
    # A model is the run's own algorithm, built and evaluated by the code that trained it; `best` names what
    # results select.
    "inference": LEAVES
    | {"runs", "results", "data", "bench.assemble", "bench.build", "bench.evaluate", "algorithms.algorithm"},
    "bench": LEAVES | SISTERS | {"runs"},  # the only place where sisters meet
    "cli": LEAVES | SISTERS | {"runs", "bench", "results", "inference"},
    "genie_dg": {"optim", "inference", "bench"},  # the package itself offers GENIE, fit, load_model, suggest_lr
    "plugins": LEAVES
    | {"algorithms", "data", "models", "optim", "bench.trackers.tracker"},  # what a user's own row is made of
    "__main__": {"cli"},
    # Not installed, and a user of the package like any other: public modules only; nobody imports a verb.
    "paper": LEAVES | SISTERS | {"runs", "bench", "results", "inference", "plugins"},
}
"""For each package, leaf or module of the root: what of ours it may import besides itself."""

CLI_AT_ONCE = LEAVES | {"cli", "bench.options", "bench.engines.registry", "runs.config"}
"""What a verb may import at once, as its flags are made of it; the rest is imported when it runs."""


def target_of(one: Import) -> str:
    """The module that is meant: a name that is a module, or the module that has the name."""
    return one.whole if one.whole in PACKAGE | PAPER else one.module


def among(target: str, allowed: set[str]) -> bool:
    """Whether a module is one of those that are allowed, or inside one."""
    inner = target.removeprefix("genie_dg.")
    return any(inner == one or inner.startswith(f"{one}.") for one in allowed)


def is_private_to_another(target: str, module: Module) -> bool:
    """Whether some part of a name starts with ``_`` and the module is not in the package that holds it."""
    parts = target.split(".")
    holders = {".".join(parts[:depth]) for depth, part in enumerate(parts) if depth and part.startswith("_")}
    return any(not f"{module.name}.".startswith(f"{holder}.") for holder in holders)


def broken_rule(one: Import, module: Module) -> str:
    """The rule that forbids an import; empty when it is allowed."""
    target = target_of(one)
    root = target.split(".")[0]
    if root not in ("genie_dg", "paper"):
        foreign = root not in sys.stdlib_module_names
        at_once = module.top == "cli" and one.at_once
        return "a verb imports libraries when it runs" if at_once and foreign else ""
    if root == "paper":
        return "" if module.top == "paper" else "nothing installed imports paper"
    if one.whole == "genie_dg.__version__":
        return ""
    if target in PACKAGE and PACKAGE[target].is_package:
        return "" if module.top == "paper" else "import its modules, not a package"
    top = Module(target, "").top
    if top != module.top and not among(target, ALLOWED.get(module.top, set())):
        return f"{module.top} may not import {top}"
    if target not in PACKAGE:
        return "there is no such module"
    if module.top == "cli" and one.at_once and not among(target, CLI_AT_ONCE):
        return "a verb imports what it needs when it runs"
    return "a private module of another package" if is_private_to_another(target, module) else ""


def violations(module: Module) -> list[str]:
    """One line for each import that the rules forbid, with the rule."""
    broken = {one.whole: broken_rule(one, module) for one in imports(module)}
    return [f"{module.name} imports {whole}: {rule}" for whole, rule in sorted(broken.items()) if rule]


def test_the_rules_hold() -> None:
    assert [line for module in (PACKAGE | PAPER).values() for line in violations(module)] == []


def test_everything_has_a_rule() -> None:
    assert {module.top for module in PACKAGE.values()} == set(ALLOWED) - {"paper"}
    assert {module.top for module in PAPER.values()} == {"paper"}
    assert {"check", "registry", "search_space", "runtime", "statistics", "facts"} <= LEAVES


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("data.digits", "from genie_dg.optim.genie import GENIE", "data may not import optim"),
        ("data.published.terra", "from ...optim.genie import GENIE", "data may not import optim"),
        ("data.digits", "from .. import models", "not a package"),
        ("data.digits", "from genie_dg.runs.config import RunConfig", "data may not import runs"),
        ("optim.genie", "def f():\n    from genie_dg.data import digits", "optim may not import data"),
        ("optim.genie", "class A:\n    def f(self):\n        import genie_dg.data.digits", "import data"),
        ("optim.genie", "f = lambda: import_module('genie_dg.data.digits')", "optim may not import data"),
        ("optim.genie", "if TYPE_CHECKING:\n    import genie_dg.data.digits", "optim may not import data"),
        ("protocols.sweep", "from genie_dg.runs.record import Record", "protocols may not import runs"),
        ("runs.folder", "def f():\n    from genie_dg.optim.genie import GENIE", "runs may not import optim"),
        ("results.frame", "from genie_dg.bench.options import Job", "results may not import bench"),
        ("inference.load", "from genie_dg.bench.train import train", "inference may not import bench"),
        ("bench.train", "from genie_dg.results.frame import load", "bench may not import results"),
        ("bench.train", "from paper.tables import main", "nothing installed imports paper"),
        ("cli.table", "def run():\n    import paper", "nothing installed imports paper"),
        ("_moments", "from genie_dg.optim.genie import GENIE", "_moments may not import optim"),
        ("bench.assemble", "from genie_dg.optim._update import new_weights", "a private module"),
        ("bench.watch", "import genie_dg.diagnostics", "not a package"),
        ("bench.watch", "from genie_dg.bench.wacth import GROUPS", "there is no such module"),
        ("cli.train", "from genie_dg.bench.train import train", "when it runs"),
        ("cli.train", "try:\n    import torch\nexcept ImportError:\n    pass", "libraries when it runs"),
        ("cli.train", "if TYPE_CHECKING:\n    pass\nelse:\n    from rich import box", "when it runs"),
        ("paper.tables", "from genie_dg.cli.main import main", "paper may not import cli"),
        ("paper.tables", "from genie_dg.optim._update import new_weights", "a private module"),
    ],
)
def test_the_checker_sees_a_violation(name: str, text: str, rule: str) -> None:
    (line,) = violations(Module(name if name.startswith("paper.") else f"genie_dg.{name}", text))
    assert rule in line.rpartition(": ")[2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("genie_dg.optim.genie", "from genie_dg import _random\nfrom genie_dg._moments import averaging"),
        ("genie_dg.optim.genie", "from ._update import step\nfrom .. import _random\nimport torch.optim"),
        ("genie_dg.protocols.sweep", "from genie_dg.runs.config import RunConfig"),
        ("genie_dg.bench.assemble", "from genie_dg.data import digits\nfrom genie_dg.optim.genie import GENIE"),
        ("genie_dg.cli.main", "from genie_dg import __version__, check\nimport argparse"),
        ("genie_dg.cli.train", "def run():\n    import torch\n    from genie_dg.bench.train import train"),
        ("paper.tables", "import torch\nfrom genie_dg import GENIE\nfrom genie_dg.bench.train import train"),
    ],
)
def test_the_checker_lets_the_allowed_pass(name: str, text: str) -> None:
    assert violations(Module(name, text)) == []


def loaded_by(statement: str) -> set[str]:
    """The modules that are loaded in a fresh interpreter after a statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return set(done.stdout.split())


HEAVY = {"torchvision", "PIL", "matplotlib", "sklearn", "scipy", "rich", "ray", "triton", "polars", "msgspec"}
HEAVY |= {"jinja2", "cv2", "timm", "torch._dynamo", "torch._inductor", "jax", "optax", "pooch", "shtab", "tqdm"}


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


def test_no_module_of_these_loads_torch() -> None:
    members = [m.name for m in PACKAGE.values() if m.top in ("runs", "results", "protocols")]
    loaded = loaded_by("\n".join(f"import {name}" for name in members))
    assert set(members) <= loaded
    assert "torch" not in loaded
