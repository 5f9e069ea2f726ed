"""Tables as text: Markdown to read, LaTeX (booktabs) to print, CSV to compute with.

Markdown and LaTeX show percent with one decimal; a missing cell is ``X`` with a footnote that says why, a cell
without meaning ``-``. CSV has one line for each cell, with accuracies from 0 to 1 in full precision.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from genie_dg.check import did_you_mean

from .schema import ResultsError
from .table import Cell, Line, Table

FORMATS = ("md", "tex", "csv")
"""The formats by name."""

_WHO = ("table", "dataset", "selection", "protocol", "algorithm", "optimizer", "backbone", "source", "column")
COLUMNS = (*_WHO, "accuracy", "standard_error", "trials", "fewest_draws", "most_draws", "note")
"""Of CSV."""

_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def render(tables: Sequence[Table], form: str = "md") -> str:
    """Tables in a format; the text ends with a line break."""
    if form == "md":
        return "\n".join(_markdown(table, _shown(tables)) for table in tables)
    if form == "tex":
        return "\n".join(_latex(table, _shown(tables)) for table in tables)
    if form == "csv":
        return _csv(tables)
    raise ResultsError(
        f"{form!r} is no format; the choice is {', '.join(FORMATS)}{did_you_mean(form, FORMATS)}"
    )


def escape_markdown(text: str) -> str:
    r"""A name that Markdown shows as it is; underscores inside a word need no escape.

    >>> print(escape_markdown("art_painting|a*b"), escape_markdown("_x_ & <b>"))
    art_painting\|a\*b \_x\_ & \<b>
    """
    text = re.sub(r"([\\`*\[\]<|])", r"\\\1", " ".join(text.split()))
    text = re.sub(r"&(?=#?\w+;)", r"\&", text)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\_", text)


def escape_latex(text: str) -> str:
    r"""A name that LaTeX prints as it is.

    >>> print(escape_latex("art_painting & 50 %"))
    art\_painting \& 50 \%
    """
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))


def number(cell: Cell, between: str = " +/- ") -> str:
    """A cell without its footnote.

    >>> number(Cell(0.2, 0.047, 3)), number(Cell(0.2)), number(Cell()), number(Cell(blank=True))
    ('20.0 +/- 4.7', '20.0', 'X', '-')
    """
    if cell.blank:
        return "-"
    if cell.mean is None:
        return "X"
    return f"{100 * cell.mean:.1f}" + ("" if cell.error is None else f"{between}{100 * cell.error:.1f}")


def _shown(tables: Sequence[Table]) -> list[str]:
    """The names of a row that are worth a column: backbone and protocol only when there are several."""
    rows = {line.row for table in tables for line in table.lines}
    names = ["algorithm", "optimizer"]
    return names + [name for name in ("backbone", "protocol") if len({getattr(row, name) for row in rows}) > 1]


def _labels(line: Line, names: Sequence[str]) -> list[str]:
    return [str(getattr(line.row, name)) for name in names] + ([line.source] if line.source else [])


def _footnotes(table: Table) -> dict[str, int]:
    """The notes of the cells, each once, numbered from 1."""
    notes = dict.fromkeys(cell.note for line in table.lines for cell in line.cells if cell.note)
    return {note: at for at, note in enumerate(notes, 1)}


def _body(
    table: Table, names: Sequence[str], escape: Callable[[str], str], between: str, mark: str
) -> tuple[list[str], list[list[str]], list[str]]:
    """The heads, the rows and the lines of footnotes, as text."""
    notes = _footnotes(table)
    heads = [*names, *(["source"] if table.kind == "matrix" else []), *map(escape, table.columns)]
    rows = []
    for line in table.lines:
        cells = [number(c, between) + (mark.format(notes[c.note]) if c.note else "") for c in line.cells]
        rows.append([*map(escape, _labels(line, names)), *cells])
    told = [f"{mark.format(at).strip()} {escape(_sentence(note))}" for note, at in notes.items()]
    return heads, rows, [*told, *map(escape, table.notes)]


def _markdown(table: Table, names: Sequence[str]) -> str:
    heads, rows, told = _body(table, names, escape_markdown, " +/- ", " ({})")
    heads += ["trials", "draws"]
    for line, row in zip(table.lines, rows, strict=True):
        real = [cell for cell in line.cells if cell.mean is not None]
        row += [_span([c.trials for c in real]), _span([bound for c in real for bound in c.draws])]
    left = len(heads) - len(table.columns) - 2
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    rule = ["-" * width if k < left else "-" * (width - 1) + ":" for k, width in enumerate(widths)]
    lines = [f"### {escape_markdown(table.title)}", ""]
    lines += [f"| {' | '.join(_pad(row, widths, left))} |" for row in (heads, rule, *rows)]
    for note in told:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def _latex(table: Table, names: Sequence[str]) -> str:
    heads, rows, told = _body(table, names, escape_latex, r" $\pm$ ", r"\textsuperscript{{{}}}")
    left = len(heads) - len(table.columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(table.title)}, in \%.}}"]
    lines += [rf"\begin{{tabular}}{{{'l' * left}{'r' * len(table.columns)}}}", r"\toprule"]
    lines += [" & ".join(heads) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if told:
        lines += [r"\par\footnotesize", " \\\\\n".join(told)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _csv(tables: Sequence[Table]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in tables:
        for line in table.lines:
            row = line.row
            who = [
                table.dataset,
                table.method,
                row.protocol,
                row.algorithm,
                row.optimizer,
                row.backbone,
                line.source,
            ]
            for column, c in zip(table.columns, line.cells, strict=True):
                if not c.blank:
                    numbers = ["" if x is None else repr(x) for x in (c.mean, c.error)]
                    writer.writerow([table.kind, *who, column, *numbers, c.trials, *c.draws, c.note])
    return text.getvalue()


def _pad(row: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    padded = zip(row, widths, strict=True)
    return [text.ljust(width) if k < left else text.rjust(width) for k, (text, width) in enumerate(padded)]


def _span(counts: Sequence[int]) -> str:
    """One number, or the smallest and the largest.

    >>> _span([3, 3]), _span([18, 20]), _span([])
    ('3', '18-20', '-')
    """
    if not counts:
        return "-"
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."
