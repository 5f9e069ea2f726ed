"""Tables and lists as markup; every text that comes from a run passes through `escape`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from genie_dg.results.select import Row
from genie_dg.results.table import Cell, Line, Table

from . import charts


@dataclass(frozen=True)
class Entry:
    """One cell of a table.

    Args:
        markup: what is shown, already escaped.
        value: what it is sorted by; empty goes last.
        classes, style: of the cell.
    """

    markup: str
    value: str = ""
    classes: str = ""
    style: str = ""


def text(words: object, classes: str = "text") -> Entry:
    """A cell of words.

    >>> text("<b>").markup
    '&lt;b&gt;'
    """
    return Entry(escape(str(words)), str(words), classes)


def plain(value: float | None, digits: int = 1, sign: str = "") -> Entry:
    """A cell with a number."""
    return Entry("-" if value is None else f"{value:{sign}.{digits}f}", "" if value is None else repr(value))


def table(caption: str, header: Sequence[str], lines: Sequence[Sequence[Entry]], words: int = 1) -> str:
    """A table that scrolls in its own box and sorts; the first column heads its rows.

    Args:
        caption: plain text.
        header: plain text.
        lines: the cells.
        words: how many columns from the left hold words.
    """
    heads = "".join(
        f'<th scope="col"{" class=text" if k < words else ""}>{escape(name)}</th>'
        for k, name in enumerate(header)
    )
    body = "".join(f"<tr>{''.join(_cell(e, k == 0) for k, e in enumerate(line))}</tr>" for line in lines)
    name = escape(caption)
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table class="sorts">'
        f"<caption>{name}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(entry: Entry, first: bool) -> str:
    more = f' data-value="{escape(entry.value)}"'
    more += f' class="{entry.classes}"' if entry.classes else ""
    more += f' style="{entry.style}"' if entry.style else ""
    return f'<th scope="row"{more}>{entry.markup}</th>' if first else f"<td{more}>{entry.markup}</td>"


def result_table(found: Table, labels: Mapping[Row, str]) -> str:
    """A table of accuracies in percent; what is missing, or lacks something, is explained below it."""
    notes: dict[str, int] = {}
    matrix = found.kind == "matrix"
    best = [] if matrix else _best(found.lines)
    lines = []
    for line in found.lines:
        head = line.source if matrix else labels[line.row]
        cells = [
            _accuracy(c, notes, matrix, k < len(best) and best[k] == c.mean) for k, c in enumerate(line.cells)
        ]
        lines.append([text(head), *cells])
    title = f"{found.title}; {labels[found.lines[0].row]}" if matrix else found.title
    header = ["source" if matrix else "row", *found.columns]
    told = [f"<li>{escape(note)}</li>" for note in notes]
    after = f'<ol class="notes">{"".join(told)}</ol>' if told else ""
    after += "".join(f'<p class="note">{escape(note)}</p>' for note in found.notes)
    return table(f"{title} (%)", header, lines) + after


def _best(lines: Sequence[Line]) -> list[float | None]:
    """The highest mean of each column, where there are two rows or more."""
    if len(lines) < 2:
        return []
    columns = zip(*(line.cells for line in lines), strict=True)
    return [max((c.mean for c in column if c.mean is not None), default=None) for column in columns]


def _accuracy(cell: Cell, notes: dict[str, int], heat: bool, best: bool) -> Entry:
    if cell.blank:
        return Entry("", "")
    mark = ""
    if cell.note:
        number = notes.setdefault(cell.note, len(notes) + 1)
        mark = f"<sup>{number}</sup>"
    if cell.mean is None:
        return Entry(f"missing{mark}", "", "missing")
    error = "" if cell.error is None else f" ± {100 * cell.error:.1f}"
    classes = "heat" if heat else "most" * best
    style = f"--v:{cell.mean:.2f}" if heat else ""
    return Entry(f"{100 * cell.mean:.1f}{error}{mark}", f"{100 * cell.mean:.4f}", classes, style)


def bar_charts(found: Table, labels: Mapping[Row, str], place: Callable[[str], int]) -> str:
    """For each column of a table a small chart with one bar for each row."""
    figures = []
    for k, column in enumerate(found.columns):
        if all(line.cells[k].mean is None for line in found.lines):
            continue
        items = []
        for line in found.lines:
            mean, error = line.cells[k].mean, line.cells[k].error
            name = labels[line.row]
            high, wide = (None if x is None else 100 * x for x in (mean, error))
            items.append((place(name), name, high, wide))
        figures.append(figure(column, charts.bars(f"Accuracy, {column}", items)))
    return f'<div class="charts">{"".join(figures)}</div>'


def figure(caption: str, drawn: str) -> str:
    """A chart with its caption."""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{drawn}</figure>"


def details(summary: str, inner: str) -> str:
    """A part that opens on demand."""
    return f"<details><summary>{escape(summary)}</summary>{inner}</details>"
