"""Results as text: Markdown to read, LaTeX (booktabs) to print, CSV to compute with.

Markdown and LaTeX show percent with one decimal; a missing cell is ``X`` with a footnote that says why, a cell
without meaning ``-``. CSV has one line for each number, with accuracies from 0 to 1 in full precision and the
identities of the chosen runs.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from genie_dg.check import one_of

from .compare import ALL_DATA, Comparison, Comparisons, budget_of
from .frame import ResultsError
from .tables import PACE, Cell, Table, TableLine, extras

TABLE_FORMATS = ("md", "tex", "csv")
"""The formats by name."""

_WHO = ("table", "dataset", "selection", "protocol", "algorithm", "optimizer", "backbone", "source", "column")
_WHAT = ("accuracy", "standard_error", "trials", "fewest_draws", "most_draws", "note", "seconds_per_step")
_CSV_COLUMNS = (*_WHO, *_WHAT, "runs")
"""Of the CSV of tables."""

_BEST_OF = (1, 2, 5, 10, 20)
"""The numbers of draws of which the best-of-k table speaks."""

_TEX_WORDS = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
_TEX = {c: rf"\{c}" for c in "&%$#_{}"} | {c: rf"\text{word}{{}}" for c, word in _TEX_WORDS.items()}


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


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]], left: int | None = None) -> str:
    """A Markdown table whose columns are as wide as their widest cell, without a line break at its end.

    Args:
        header: names of the columns.
        lines: the cells.
        left: how many columns are aligned to the left, the others to the right; all when not given.

    >>> print(markdown_table(["row", "n"], [["Adam", "7"]], 1))
    | row  |  n |
    | ---- | -: |
    | Adam |  7 |
    """
    left = len(header) if left is None else left
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    widths = [max(width, 2) if k >= left else width for k, width in enumerate(widths)]
    rule = ["-" * width if k < left else "-" * (width - 1) + ":" for k, width in enumerate(widths)]
    drawn = []
    for line in (header, rule, *lines):
        cells = zip(line, widths, strict=True)
        drawn.append([text.ljust(w) if k < left else text.rjust(w) for k, (text, w) in enumerate(cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in drawn)


def csv_text(header: Sequence[object], lines: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; what is missing is empty.

    >>> csv_text(["a", "b"], [[1, None]])
    'a,b\\n1,\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if cell is None or cell != cell else cell for cell in line] for line in lines)
    return text.getvalue()


def render(tables: Sequence[Table], form: str = "md") -> str:
    """Tables in a format; the text ends with a line break."""
    one_of("format", form, TABLE_FORMATS, ResultsError)
    if form == "csv":
        return _csv(tables)
    write = _markdown if form == "md" else _latex
    return "\n".join(write(table, _shown(tables)) for table in tables)


def cell_text(cell: Cell, between: str = " +/- ") -> str:
    """A cell without its footnote.

    >>> cell_text(Cell(0.2, 0.047, 3)), cell_text(Cell(0.2)), cell_text(Cell()), cell_text(Cell(blank=True))
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


def _labels(line: TableLine, names: Sequence[str]) -> list[str]:
    return [str(getattr(line.row, name)) for name in names] + ([line.source] if line.source else [])


def footnotes(table: Table) -> dict[str, int]:
    """The notes of the cells, each once, numbered from 1."""
    notes = dict.fromkeys(cell.note for line in table.lines for cell in line.cells if cell.note)
    return {note: at for at, note in enumerate(notes, 1)}


def _body(
    table: Table, names: Sequence[str], escape: Callable[[str], str], between: str, mark: str
) -> tuple[list[str], list[list[str]], list[str]]:
    """The heads, the rows and the lines of footnotes, as text."""
    notes = footnotes(table)
    heads = [*names, *(["source"] if table.kind == "matrix" else []), *map(escape, table.columns)]
    rows = []
    for line in table.lines:
        cells = [cell_text(c, between) + (mark.format(notes[c.note]) if c.note else "") for c in line.cells]
        rows.append([*map(escape, _labels(line, names)), *cells])
    below = [f"{mark.format(at).strip()} {escape(_sentence(note))}" for note, at in notes.items()]
    return heads, rows, [*below, *map(escape, table.notes)]


def _markdown(table: Table, names: Sequence[str]) -> str:
    heads, rows, below = _body(table, names, escape_markdown, " +/- ", " ({})")
    left = len(heads) - len(table.columns)
    beside = [extras(line) for line in table.lines]
    timed = any(line.pace is not None for line in table.lines)
    known = [name for name in beside[0] if timed or name != PACE]
    rows = [[*row, *(said[name] for name in known)] for said, row in zip(beside, rows, strict=True)]
    text = markdown_table([*heads, *known], rows, left)
    return "\n\n".join([f"### {escape_markdown(table.title)}", text, *below]) + "\n"


def _latex(table: Table, names: Sequence[str]) -> str:
    heads, rows, below = _body(table, names, escape_latex, r" $\pm$ ", r"\textsuperscript{{{}}}")
    left = len(heads) - len(table.columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(table.title)}, in \%.}}"]
    lines += [rf"\begin{{tabular}}{{{'l' * left}{'r' * len(table.columns)}}}", r"\toprule"]
    lines += [" & ".join(heads) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if below:
        lines += [r"\par\footnotesize", " \\\\\n".join(below)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _csv(tables: Sequence[Table]) -> str:
    lines = []
    for table in tables:
        for line in table.lines:
            r = line.row
            who = [table.dataset, table.method, r.protocol, r.algorithm, r.optimizer, r.backbone, line.source]
            for column, c in zip(table.columns, line.cells, strict=True):
                if not c.blank:
                    numbers = [None if x is None else repr(x) for x in (c.mean, c.error)]
                    what = [*numbers, c.trials, *c.draws, c.note, line.pace, " ".join(c.runs)]
                    lines.append([table.kind, *who, column, *what])
    return csv_text(_CSV_COLUMNS, lines)


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def render_comparisons(all_: Comparisons) -> str:
    """A comparison in Markdown, accuracies in percent and differences in points: four tables and the notes."""
    columns = [k for k in _BEST_OF if any(len(values) >= k for values in all_.best_of.values())]
    blocks = [
        "Difference of the test accuracies of the selected draws, in points. The 95 % interval is about other "
        "trials and other outcomes of the search, not about other test domains or search spaces.",
        markdown_table(
            ["data", "row", "baseline", "difference", "interval", "splits", "wins/ties/losses"],
            [_difference(c) for c in all_.differences],
        ),
        *dict.fromkeys(f"Note: {note}" for c in _whole(all_.differences) for note in c.notes),
        "Tuning budget of each row.",
        markdown_table(["row", "budget"], [[row, str(budget_of(all_.grouped[row]))] for row in all_.rows]),
    ]
    if columns:
        blocks += [
            "Expected test accuracy (%) of the best of k draws, over the splits that all rows share.",
            markdown_table(
                ["row", *(f"k = {k}" for k in columns)],
                [
                    [row, *(percent(dict(enumerate(all_.best_of[row], 1)).get(k)) for k in columns)]
                    for row in all_.rows
                ],
            ),
        ]
    else:
        blocks.append("Note: no split is shared by all rows, so there is no table of the best of k draws.")
    return "\n\n".join(blocks)


def _difference(c: Comparison) -> list[str]:
    between = "-" if c.interval is None else f"{points(c.interval.low)} to {points(c.interval.high)}"
    counts = f"{c.wins}/{c.ties}/{c.losses}"
    return [c.dataset, c.row, c.baseline, points(c.mean), between, str(len(c.pairs)), counts]


def _whole(differences: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons whose notes are shown: over all data sets where there are several."""
    several = {(c.row, c.baseline) for c in differences if c.dataset == ALL_DATA}
    return [
        c
        for c in differences
        if c.dataset == ALL_DATA or (c.row, c.baseline) not in several or c.interval is None
    ]


def comparison_data(compared: Comparisons) -> dict[str, object]:
    """A comparison for programs: accuracies and differences from 0 to 1."""
    differences = [
        {
            "data": c.dataset,
            "row": c.row,
            "baseline": c.baseline,
            "difference": c.mean,
            "interval": None if c.interval is None else [c.interval.low, c.interval.high],
            "splits": len(c.pairs),
            "wins": c.wins,
            "ties": c.ties,
            "losses": c.losses,
            "notes": list(c.notes),
        }
        for c in compared.differences
    ]
    return {
        "differences": differences,
        "budgets": {row: asdict(budget_of(compared.grouped[row])) for row in compared.rows},
        "best_of": {row: list(values) for row, values in compared.best_of.items()},
        "notes": list(compared.notes),
    }


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent, ``-`` for none."""
    return "-" if value is None else f"{100 * value:.{digits}f}"


def points(value: float) -> str:
    """A difference in points, with its sign; zero has none of minus."""
    return f"{round(100 * value, 2) + 0.0:+.2f}"
