"""The pages that show kept ledgers, made anew: whatever the numbers say, the pages say.

``python -m paper pages``, at the root of a checkout, reads ``docs/figures/paper`` and ``studies`` and writes

- ``docs/coverage.md``,
- in ``docs/claims.md`` what stands between ``<!-- numbers of claims-x.json -->``, or of ``studies/x``, and
  ``<!-- end of numbers -->``,
- in ``README.md`` the summary of the claims and the sentences about accuracy, between marks like these.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .coverage import coverage_page
from .kept_ledgers import KeptLedger, all_ledgers, measured_claims
from .logged import committed
from .request import PaperError
from .summary import accuracy_in_short, summary

LEDGER, README = Path("docs", "claims.md"), Path("README.md")


def put(text: str, block: str, begin: str, end: str, file: Path) -> str:
    r"""The text of a file with a block between two marks, in place of what was there.

    >>> put("a\n<!-- x -->\nold\n<!-- end -->\nb", "new", "x", "end", Path("page.md"))
    'a\n<!-- x -->\n\nnew\n\n<!-- end -->\nb'
    """
    first, last = f"<!-- {begin} -->\n", f"<!-- {end} -->"
    before, mark, rest = text.partition(first)
    _, closed, after = rest.partition(last)
    if not mark or not closed or first in after:
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
    """By path in a checkout the text that each page should have."""
    ledgers, logged = all_ledgers(root), committed()
    claims = measured_claims(ledgers)
    readme = (root / README).read_text(encoding="utf-8")
    readme = put(readme, summary(claims, logged), "summary of claims", "end of summary", README)
    readme = put(readme, accuracy_in_short(claims, logged), "accuracy in short", "end of accuracy", README)
    return {
        Path("docs", "coverage.md"): coverage_page(claims) + "\n",
        LEDGER: with_numbers((root / LEDGER).read_text(encoding="utf-8"), ledgers),
        README: readme,
    }


def write_pages(root: Path) -> None:
    """Write the pages of a checkout and say which changed."""
    for path, text in pages(root).items():
        changed = (root / path).read_text(encoding="utf-8") != text
        (root / path).write_text(text, encoding="utf-8")
        print(f"{path}: {'made anew' if changed else 'as it was'}")
