"""The pages that show kept ledgers, made anew: whatever the numbers say, the pages say.

``python -m genie_dg.paper.claims_pages .`` in the repository reads ``docs/figures/paper`` and ``studies`` and
writes

- ``src/genie_dg/paper/measured.csv``, which an installed package carries,
- ``docs/coverage.md``,
- in ``docs/claims.md`` what stands between ``<!-- numbers of claims-x.json -->``, or of ``studies/x``, and
  ``<!-- end of numbers -->``,
- in ``README.md`` the summary of the claims and the sentences about accuracy, between marks like these.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from .coverage import page
from .kept_ledgers import KeptLedger, read_kept, study_ledger
from .logged import committed
from .measured import NAME, read_measured, text_of
from .request import PaperError
from .summary import accuracy_in_short, summary

KEPT = Path("docs", "figures", "paper")
LEDGER, README = Path("docs", "claims.md"), Path("README.md")


def put(text: str, block: str, begin: str, end: str, file: Path) -> str:
    r"""The text of a file with a block between two marks, in place of what was there.

    >>> put("a\n<!-- x -->\nold\n<!-- end -->\nb", "new", "x", "end", Path("page.md"))
    'a\n<!-- x -->\n\nnew\n\n<!-- end -->\nb'
    """
    first, last = f"<!-- {begin} -->\n", f"<!-- {end} -->"
    before, found, rest = text.partition(first)
    _, closed, after = rest.partition(last)
    if not found or not closed or first in after:
        raise PaperError(
            f"{file} must have {first.strip()} once and {last} after it; put them where the block is to stand."
        )
    return f"{before}{first}\n{block}\n\n{last}{after}"


def with_numbers(text: str, ledgers: Sequence[KeptLedger]) -> str:
    """The page of the ledger with the tables of every kept file."""
    for ledger in ledgers:
        text = put(text, ledger.markdown(), f"numbers of {ledger.file}", "end of numbers", LEDGER)
    marked = text.count("<!-- numbers of ")
    if marked != len(ledgers):
        raise PaperError(
            f"{LEDGER} has marks for {marked} ledgers and there are {len(ledgers)}; "
            "remove marks without a file."
        )
    return text


def pages(root: Path) -> dict[Path, str]:
    """By path in a repository the text that each page should have."""
    studies = [study_ledger(path.parent) for path in sorted((root / "studies").glob("*/runs.tar.xz"))]
    measured, logged = read_measured(root / KEPT, studies), committed()
    readme = (root / README).read_text(encoding="utf-8")
    for begin, end, block in (
        ("summary of claims", "end of summary", summary(measured, logged)),
        ("accuracy in short", "end of accuracy", accuracy_in_short(measured, logged)),
    ):
        readme = put(readme, block, begin, end, README)
    return {
        Path("src", "genie_dg", "paper", NAME): text_of(measured),
        Path("docs", "coverage.md"): page(measured) + "\n",
        LEDGER: with_numbers((root / LEDGER).read_text(encoding="utf-8"), [*read_kept(root / KEPT), *studies]),
        README: readme,
    }


def main(arguments: list[str]) -> int:
    """Write the pages of the repository that is named."""
    if len(arguments) != 1:
        print(f"Got {len(arguments)} arguments; expected one, the folder of the repository.", file=sys.stderr)
        return 2
    root = Path(arguments[0])
    for path, text in pages(root).items():
        changed = (root / path).read_text(encoding="utf-8") != text
        (root / path).write_text(text, encoding="utf-8")
        print(f"{path}: {'made anew' if changed else 'as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
