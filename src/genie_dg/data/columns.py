"""Which column of a table says what: the domain, the label, the picture; what is not named is guessed.

The command line imports this before it knows whether anything is asked of data, so NumPy is not imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genie_dg.check import did_you_mean

DOMAIN = ("domain", "env", "environment")
LABEL = ("label", "class", "target", "y")
"""Names by which a column is taken for the domain or the label, in any case, when none is given."""


@dataclass(frozen=True)
class Columns:
    """The names of columns; an empty one is guessed.

    Args:
        domain: whose distinct values are the domains.
        label: whose distinct values are the classes.
        image: whose values are pictures, in a table of pictures.
        ignored: what is neither of these and no feature, such as the number of a patient.
    """

    domain: str = ""
    label: str = ""
    image: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def given(self) -> bool:
        """Whether any column is named."""
        return self != Columns()


def chosen_column(what: str, given: str, present: Sequence[str], usual: Sequence[str], where: object) -> str:
    """The column that was given, or the only one with a usual name; anything else is refused.

    Args:
        what: "domain", "label" or "image".
        given: by the user; empty for a guess.
        present: the columns that are there.
        usual: names to look for.
        where: the file, for messages.

    >>> chosen_column("label", "", ["age", "Label"], LABEL, "a.csv")
    'Label'
    """
    from .domains import DataError

    if given:
        check_column(given, f"--{what}-column", present, where)
        return given
    likely = [name for name in present if name.lower() in usual]
    if len(likely) == 1:
        return likely[0]
    seen = f"{' and '.join(likely)} could both be it" if likely else f"no column is named {' or '.join(usual)}"
    raise DataError(
        f"{where} does not say which column is the {what} ({seen}); name it with --{what}-column NAME, or in a "
        f"sweep under [columns]; there are {name_list(present)}."
    )


def check_column(name: str, flag: str, present: Sequence[str], where: object) -> None:
    """Refuse the name of a column that is not there."""
    from .domains import DataError

    if name not in present:
        hint = did_you_mean(name, present)
        raise DataError(f"got {flag} {name!r}, and {where} has the columns {name_list(present)}{hint}")


def name_list(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, cut where they are many.

    >>> name_list(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
