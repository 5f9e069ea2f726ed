"""The size of the project and of its parts, and one meaning for each public name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from .source_tree import REPOSITORY, Module, code_lines, imports, modules

PACKAGE = modules()
LONGEST_FUNCTION, MOST_PARAMETERS = 40, 6
FUNCTIONS_WITH_MORE_PARAMETERS, MODULES_WITH_ONE_IMPORTER = 10, 40
CODE_LINES = {"src": 20_500, "paper": 3_800, "tests": 26_000}
IN_EVERY_VERB, IN_EVERY_ROW = {"add_arguments", "run"}, {"ROW", "ROWS"}


def public_names(module: Module) -> set[str]:
    """The names without an underscore that the top level of a file defines; none of an ``__init__``."""
    names = set()
    for node in [] if module.is_package else ast.parse(module.text).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            stored = (part for target in targets for part in ast.walk(target))
            names |= {p.id for p in stored if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)}
    return {name for name in names if not name.startswith("_")}


def with_two_meanings(package: dict[str, Module]) -> dict[str, list[str]]:
    """Each public name that several modules define, with these modules."""
    definers = defaultdict(list)
    for module in package.values():
        for name in public_names(module) - IN_EVERY_ROW - (IN_EVERY_VERB if module.top == "cli" else set()):
            definers[name].append(module.name)
    return {name: names for name, names in sorted(definers.items()) if len(names) > 1}


def renamed_modules(package: dict[str, Module]) -> list[str]:
    """The imports that give one of our modules the name of another."""
    return [
        f"{module.name}: {one.whole} as {one.alias}"
        for module in package.values()
        for one in imports(module)
        if one.whole in package and one.alias not in ("", one.whole.rpartition(".")[2])
    ]


def optimizer_classes(package: dict[str, Module]) -> set[str]:
    """The names of the classes that derive from torch's ``Optimizer``, directly or through others of ours."""
    trees = [ast.parse(module.text) for module in package.values()]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    # An index (Generic[T]) and the path to a name do not matter: torch.optim.Optimizer is Optimizer.
    bases = {c.name: {ast.unparse(b).partition("[")[0].rpartition(".")[2] for b in c.bases} for c in classes}
    derived = {"Optimizer"}
    while more := {name for name, its_bases in bases.items() if its_bases & derived} - derived:
        derived |= more
    return derived


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Every function, also inner ones, with the class whose method it is, if any."""
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function:
            yield node, inside  # type: ignore[misc]  # a function, which mypy does not see
        yield from functions(
            node, node.name if isinstance(node, ast.ClassDef) else "" if is_function else inside
        )


def long_functions(package: dict[str, Module]) -> dict[str, int]:
    """The functions with too many lines of code, from the ``def`` on, with how many they have."""
    counts = {}
    for module in package.values():
        lines = code_lines(module.text)
        for node, _ in functions(ast.parse(module.text)):
            counts[f"{module.name}.{node.name}"] = sum(
                node.lineno <= k <= (node.end_lineno or 0) for k in lines
            )
    return {name: count for name, count in counts.items() if count > LONGEST_FUNCTION}


def wide_functions(package: dict[str, Module]) -> dict[str, int]:
    """The functions with too many parameters, besides ``self``, with how many; no optimizer's constructor."""
    optimizers, counts = optimizer_classes(package), {}
    for module in package.values():
        for node, inside in functions(ast.parse(module.text)):
            positional = [*node.args.posonlyargs, *node.args.args]
            is_bound = bool(positional) and positional[0].arg in ("self", "cls")
            if node.name != "__init__" or inside not in optimizers:
                name = ".".join(part for part in (module.name, inside, node.name) if part)
                counts[name] = len(positional) + len(node.args.kwonlyargs) - is_bound
    return {name: count for name, count in counts.items() if count > MOST_PARAMETERS}


def with_one_importer(package: dict[str, Module]) -> dict[str, str]:
    """The modules that a single other one imports, with that one; rows of a registry are left out."""
    importers = defaultdict(set)
    for module in package.values():
        for one in imports(module):
            importers[one.whole if one.whole in package else one.module].add(module.name)
    alone = {name: (importers[name] - {name}).pop() for name in package if len(importers[name] - {name}) == 1}
    return {
        name: importer
        for name, importer in alone.items()
        if package[name].top != "algorithms" and importer.rpartition(".")[2] != "registry"
    }


def test_a_public_name_means_one_thing() -> None:
    assert with_two_meanings(PACKAGE) == {}


def test_no_module_is_imported_under_the_name_of_another() -> None:
    assert renamed_modules(PACKAGE) == []


def test_functions_are_short() -> None:
    assert long_functions(PACKAGE) == {}


def test_few_functions_have_many_parameters() -> None:
    wide = wide_functions(PACKAGE)
    assert len(wide) <= FUNCTIONS_WITH_MORE_PARAMETERS, wide


def test_few_modules_have_one_importer() -> None:
    alone = with_one_importer(PACKAGE)
    assert len(alone) <= MODULES_WITH_ONE_IMPORTER, alone


@pytest.mark.parametrize("folder", list(CODE_LINES))
def test_there_are_no_more_lines_of_code_than_agreed(folder: str) -> None:
    counts = {m.name: len(code_lines(m.text)) for m in modules(REPOSITORY / folder).values()}
    assert sum(counts.values()) <= CODE_LINES[folder], f"The {folder} folder has {sum(counts.values())}."


def package_of(**texts: str) -> dict[str, Module]:
    named = {f"genie_dg.{key.replace('__', '.')}": text for key, text in texts.items()}
    return {name: Module(name, text) for name, text in named.items()}


def test_two_meanings_would_be_seen() -> None:
    small = package_of(
        a="MOST: int = 1\n_OWN = 2\nrows[most] = 1\nROW = 1",
        b="def MOST(): x = 1\n_OWN = 3",
        cli__c="ROW, run = 2, 3",
    )
    assert with_two_meanings(small) == {"MOST": ["genie_dg.a", "genie_dg.b"]}
    verbs = package_of(cli__a="def run(): ...", cli__b="def run(): ...", runs__c="def run(): ...")
    assert with_two_meanings(verbs) == {}
    assert with_two_meanings(verbs | package_of(bench__d="class run: ...")) == {
        "run": ["genie_dg.runs.c", "genie_dg.bench.d"]
    }


def test_another_name_for_a_module_would_be_seen() -> None:
    texts = [
        "from genie_dg import a as other",
        "def f():\n    import genie_dg.a as other",
        "from . import a as other",
    ]
    for text in texts:
        (line,) = renamed_modules(package_of(a="", b=text))
        assert line == "genie_dg.b: genie_dg.a as other"
    assert (
        renamed_modules(package_of(a="x = 1", b="from genie_dg import a as a\nfrom .a import x as other")) == []
    )


def test_a_long_function_would_be_seen() -> None:
    body = '    """Text\n    of two lines."""\n' + "    x = 1\n\n    # a comment\n"
    text = f"class A:\n  async def f(self):\n{body}" + "    x = (\n    2)\n" * 19
    assert long_functions(package_of(a=text)) == {}
    assert long_functions(package_of(a=f"{text}    x = 3\n")) == {"genie_dg.a.f": 41}


def test_many_parameters_would_be_seen() -> None:
    wide = "def __init__(self, a, b, c, d, *, e, f, g): ..."
    base = package_of(a="import torch\nclass Base(torch.optim.Optimizer): ...")
    own = package_of(b=f"class Own(Base[int]):\n    {wide}", c=f"class Free:\n    {wide}")
    assert wide_functions(base | own) == {"genie_dg.c.Free.__init__": 7}
    assert wide_functions(package_of(a="def f(a, b, c, d, e, f): ...")) == {}


def test_a_single_importer_would_be_seen() -> None:
    one = package_of(
        a="", b="def f():\n    from genie_dg.a import x", c="", optim__registry="from genie_dg import c"
    )
    assert with_one_importer(one) == {"genie_dg.a": "genie_dg.b"}
    two = one | package_of(d="import genie_dg.a")
    assert with_one_importer(two) == {}
