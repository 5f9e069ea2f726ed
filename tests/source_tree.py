"""The package as text: its modules, what each imports, and which of its lines are code."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src" / "genie_dg"


@dataclass(frozen=True)
class Module:
    """One file of the source.

    Args:
        name: with the packages it is in; a package has the name of its folder.
        text: the whole file.
        is_package: it is an ``__init__``.
    """

    name: str
    text: str
    is_package: bool = False

    @property
    def top(self) -> str:
        """The first part of the name below the root: a package, a leaf; the root itself is "genie_dg"."""
        root, _, inner = self.name.partition(".")
        return inner.split(".")[0] if root == "genie_dg" and inner else root


@dataclass(frozen=True)
class Import:
    """One imported thing.

    Args:
        module: it is imported from.
        name: taken from the module; empty in ``import module``.
        alias: the name it is given, where that is another one.
        at_once: importing the module that contains the statement runs it.
    """

    module: str
    name: str = ""
    alias: str = ""
    at_once: bool = True

    @property
    def whole(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


def module_of(path: Path, root: Path) -> Module:
    """The module of a file below the folder that holds its outermost package."""
    parts = path.relative_to(root).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Module(".".join(parts[:-1] if is_package else parts), path.read_text("utf-8"), is_package)


def modules(package: Path = SOURCE) -> dict[str, Module]:
    """All modules of a package by name; none when there is no such folder."""
    listed = (module_of(path, package.parent) for path in sorted(package.rglob("*.py")))
    return {module.name: module for module in listed}


def imports(module: Module) -> list[Import]:
    """Everything that a module imports, at any depth of its code."""
    return [
        one
        for node, at_once in _nodes(ast.parse(module.text), True)
        for one in _imported(node, module, at_once)
    ]


def _nodes(tree: ast.AST, at_once: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, each with whether importing the module runs it."""
    for child in ast.iter_child_nodes(tree):
        later = isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        later |= isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test) and child in tree.body
        yield child, at_once and not later
        yield from _nodes(child, at_once and not later)


def _imported(node: ast.AST, module: Module, at_once: bool) -> list[Import]:
    """What one node imports: a statement, or ``import_module`` with a text."""
    if isinstance(node, ast.Import):
        return [Import(one.name, "", one.asname or "", at_once) for one in node.names]
    if isinstance(node, ast.ImportFrom):
        parts = (module.name if module.is_package else module.name.rpartition(".")[0]).split(".")
        base = parts[: len(parts) - node.level + 1] if node.level else []
        start = ".".join([*base, *([node.module] if node.module else [])])
        return [Import(start, one.name, one.asname or "", at_once) for one in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
        texts = [x.value for x in node.args[:1] if isinstance(x, ast.Constant) and isinstance(x.value, str)]
        return [Import(text, "", "", at_once) for text in texts]
    return []


_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_NO_CODE |= {tokenize.ENCODING, tokenize.ENDMARKER}


def code_lines(text: str) -> set[int]:
    """The numbers of the lines with code: no blank lines, no comments, no docstrings.

    >>> sorted(code_lines('"A docstring."\\n\\nx = 1  # one\\n# a comment\\ny = (\\n    x\\n)\\n'))
    [3, 5, 6, 7]
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if is_text and isinstance(first.value.value, str):  # type: ignore[attr-defined]
                lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines
