"""What the command line tells a user who asked for something impossible."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from difflib import get_close_matches


class UserError(Exception):
    """The request cannot be met as asked. The text is one whole sentence; the exit code is 2."""


def unknown(kind: str, name: str, known: Collection[str]) -> UserError:
    """The error for a name that is not in a table: it lists the names and the nearest match.

    >>> print(unknown("verb", "demp", ["demo", "env"]))
    There is no verb 'demp' (the choice is demo, env); did you mean 'demo'?
    """
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return UserError(f"There is no {kind} {name!r} (the choice is {', '.join(known)}){hint}")


def require(purpose: str, extra: str, modules: dict[str, str]) -> None:
    """Refuse early when an optional package is missing, and name the extra that brings it.

    Args:
        purpose: the subject of the sentence, for example "The demo".
        extra: the name of the extra in this package.
        modules: what to look for, as {name of the module: name of the package that has it}.
    """
    missing = [package for module, package in modules.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError(
            f"{purpose} needs {' and '.join(missing)}, not installed here; "
            f'run pip install "genie-dg[{extra}]" and try again.'
        )
