"""Every quoted number against the LaTeX of the paper, where that is present."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from paper.published import PUBLISHED, PublishedNumber, PublishedTable

BESIDE = Path(__file__).parents[3] / "shared" / "paper.tex"
"""Where it is looked for when the environment does not name it."""
SOURCE = Path(os.environ.get("GENIE_DG_PAPER_TEX", BESIDE))
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?:±(\d+(?:\.\d+)?))?")
OTHER_NAMES = {"I-Mixup": "Mixup", "Mixstyle": "MixStyle", "YOGI": "Yogi"}
SWITCHES = {
    "xxx": "none",
    "oxx": "precondition",
    "oox": "precondition+noise",
    "oxo": "precondition+mask",
    "ooo": "precondition+noise+mask",
}


def plain(cell: str) -> str:
    r"""A cell without its LaTeX.

    >>> plain(r"\textbf{ 82.2\text{\scriptsize{±0.2}}} ")
    '82.2±0.2'
    """
    cell = re.sub(r"\\cite\{[^}]*\}|\\(textbf|text|scriptsize)|[{}$\s]", "", cell)
    return re.sub(r"\(ours\)|[*†]", "", cell)


def parsed(latex: str, label: str) -> dict[str, tuple[PublishedNumber, ...]]:
    """The rows of the table with a label, as its file in the package names them."""
    body = latex.partition(f"\\label{{{label}}}")[2].partition("\\end{tabular}")[0].partition("\\midrule")[2]
    rows: dict[str, tuple[PublishedNumber, ...]] = {}
    optimizer = ""
    body = re.sub(r"\\(midrule|bottomrule)|(?<!\\)%.*", "", body)
    for line in re.split(r"\\\\", body):
        cells = [plain(cell) for cell in line.split("&")]
        if len(cells) < 5:
            continue
        if label.endswith("_iter") or label == "tab:iteration_opt":
            optimizer = cells[0] or optimizer
            steps = cells[1].replace("150000", "15000")  # see the docstring of `published`
            name, cells = f"{optimizer}@{steps}", cells[2:]
        elif label == "tab:ablation":
            name, cells = SWITCHES["".join(cells[:3])], cells[3:]
        else:
            name, cells = OTHER_NAMES.get(cells[0], cells[0]), cells[1:]
        rows[name] = tuple(number(cell) for cell in cells)
    return rows


def number(cell: str) -> PublishedNumber:
    found = NUMBER.fullmatch(cell)
    assert found, cell
    return PublishedNumber(float(found[1].replace(",", "")), float(found[2]) if found[2] else None)


LATEX = r"""
\label{tab:one} \begin{tabular}{l} \textbf{Opt.} & A & B & C & D \\ \midrule
YOGI*\cite{yogi} & 1,234 & \textbf{2.5\text{\scriptsize{±0.2}}} & 3 & 4.0 \\
\midrule
\textbf{GENIE (ours)} & 5 & 6 & 7 & \textbf{8}\\ \bottomrule \end{tabular}
"""


def test_the_parser_reads_a_table_typed_by_hand() -> None:
    assert parsed(LATEX, "tab:one") == {
        "Yogi": tuple(PublishedNumber(*n) for n in ((1234.0,), (2.5, 0.2), (3.0,), (4.0,))),
        "GENIE": tuple(PublishedNumber(float(n)) for n in (5, 6, 7, 8)),
    }


@pytest.mark.skipif(
    not SOURCE.is_file(), reason="the LaTeX of the paper is not here; name it in GENIE_DG_PAPER_TEX"
)
@pytest.mark.parametrize("table", PUBLISHED.values(), ids=lambda table: table.place)
def test_every_quoted_number_is_that_of_the_latex(table: PublishedTable) -> None:
    label = table.place.partition("(")[2].rstrip(")")
    assert parsed(SOURCE.read_text(encoding="utf-8"), label) == table.rows
