"""One page about runs that needs nothing but itself: it opens offline, asks for no file and stays one file.

The page's own policy forbids every request and every script but the one whose digest it names, so a text from a
run could do nothing even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from genie_dg.results.schema import Run

from . import charts
from ._page_parts import bar_charts, details, figure, plain, result_table, table, text
from ._page_script import SCRIPT
from ._page_style import STYLE
from .page_curves import Chart
from .page_data import Draw, Page, RowStory, Selection, SetStory, page_data
from .page_json import numbers, safe_json

LISTED = 200
"""The most problems or unfinished runs that are listed."""
CHARTED = 12
"""The most rows whose bars are drawn; more would be longer than the table."""


def report(runs: Sequence[Run], problems: Sequence[str] = (), *, mix: bool = False) -> str:
    """The page of some runs, as text.

    Args:
        runs: from `genie_dg.results.store.load`.
        problems: from there too.
        mix: allow several protocols, each in rows of its own.
    """
    return page_text(page_data(runs, problems, mix=mix))


def page_text(page: Page) -> str:
    """The page from its numbers."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    names = ", ".join(story.name for story in page.sets)
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>Report: {escape(names)}</title><style>{STYLE}</style></head><body>",
            '<a class="skip" href="#main">Skip to the results</a>',
            f"<header><h1>Report of {_count(page.runs, 'run')}</h1>{_head(page)}</header>",
            f'<main id="main" tabindex="-1">{"".join(_set(k, s, page) for k, s in enumerate(page.sets))}',
            _averages(page),
            _ending(page),
            "</main>",
            f'<script type="application/json" id="numbers">{safe_json(numbers(page))}</script>',
            f"<script>{SCRIPT}</script></body></html>\n",
        ]
    )


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _place(page: Page, label: str) -> int:
    return list(page.labels.values()).index(label)


def _head(page: Page) -> str:
    several = len(page.protocols) > 1
    words = [
        f"{page.done:,} complete, {_count(page.runs - page.done, 'other')};",
        f"{_count(len(page.sets), 'data set')}, {_count(len(page.labels), 'row')},",
        f"protocol{'s' if several else ''} {', '.join(page.protocols)}.",
    ]
    if several:
        words.append("Numbers of different protocols mean different things; compare rows of one protocol.")
    items = [f'<li><a href="#set-{k}">{escape(story.name)}</a></li>' for k, story in enumerate(page.sets)]
    items += ['<li><a href="#averages">Averages over data sets</a></li>'] * bool(page.averages)
    items.append('<li><a href="#about">Versions and problems</a></li>')
    return (
        f"<p>{escape(' '.join(words))}</p><nav aria-label=Contents><ul>{''.join(items)}</ul></nav>"
        '<p><button id="save" type="button" hidden>Save the numbers as JSON</button></p>'
    )


def _set(at: int, story: SetStory, page: Page) -> str:
    parts = [
        f'<section aria-labelledby="set-{at}"><h2 id="set-{at}">{escape(story.name)}</h2>',
        f"<p>{_count(story.runs, 'run')}; domains: {escape(', '.join(story.domains))}.</p>",
        *(_selection(selection, page) for selection in story.selections),
        _curves(story.charts, page),
        _heats(story),
        _differences(story, page),
        _search(story, page),
        "<h3>Run it again</h3>",
        *(details(row.label, f"<pre tabindex=0>{escape(row.rerun)}</pre>") for row in story.rows),
    ]
    return "".join([*parts, "</section>"])


def _selection(selection: Selection, page: Page) -> str:
    parts = [f"<h3>Selected by {selection.method}</h3>"]
    if selection.reason:
        return parts[0] + f'<p class="note">{escape(selection.reason)}</p>'
    parts.append('<p class="note">Mean ± standard error over trials; the highest mean of a column is bold.</p>')
    for found in selection.tables:
        parts.append(result_table(found, page.labels))
        if found.kind in ("domains", "sources") and len(found.lines) <= CHARTED:
            drawn = bar_charts(found, page.labels, lambda label: _place(page, label))
            parts.append(
                details("As bars, with standard errors over trials", drawn) if _later(selection) else drawn
            )
    return "".join(parts)


def _later(selection: Selection) -> bool:
    """Only the first way of selection has its bars open."""
    return selection.method != "training-domain"


def _heats(story: SetStory) -> str:
    if not story.heats:
        return ""
    drawn = []
    for heat in story.heats[:CHARTED]:
        cells = charts.heatmap(f"Updates of {heat.label}", heat.steps, heat.rows)
        drawn.append(figure(f"{heat.label}, {_count(heat.runs, 'run')}", cells))
    return (
        '<h3>Which parameters move when</h3><p class="note">Mean movement of groups of parameters since the '
        "record before, over the largest of the step; from the first parameters below to the last above. "
        "Stronger is more; means over the chosen runs that were watched.</p>"
        f'<div class="charts">{"".join(drawn)}</div>'
    )


def _legend(labels: Sequence[str], page: Page) -> str:
    places = sorted((_place(page, label), label) for label in labels)
    items = "".join(f"<li>{charts.swatch(place)}{escape(label)}</li>" for place, label in places)
    return f'<ul class="legend">{items}</ul>'


def _curves(found: Sequence[Chart], page: Page) -> str:
    if not found:
        return ""
    drawn = []
    for chart in found:
        scale = 100 if chart.percent else 1
        lines = [
            (_place(page, s.label), [(x, scale * y) for x, y in zip(s.steps, s.values, strict=True)])
            for s in chart.series
        ]
        name = f"{chart.title} (%)" if chart.percent else chart.title
        drawn.append(figure(name, charts.lines(f"{name} against the step", lines)))
    labels = list(dict.fromkeys(s.label for chart in found for s in chart.series))
    return (
        '<h3>Learning curves</h3><p class="note">Means over the runs that training-domain selection chose.</p>'
        f'{_legend(labels, page)}<div class="charts">{"".join(drawn)}</div>'
    )


def _differences(story: SetStory, page: Page) -> str:
    if not story.differences:
        return "".join(f'<p class="note">{escape(note)}</p>' for note in story.notes)
    lines, dots = [], []
    for c in story.differences:
        low, high = (None, None) if c.interval is None else (100 * c.interval.low, 100 * c.interval.high)
        mean = 100 * c.mean
        splits = [plain(n, 0) for n in (len(c.pairs), c.wins, c.ties, c.losses)]
        ends = [plain(low, 2, "+"), plain(high, 2, "+")]
        lines.append([text(c.row), text(c.baseline), plain(mean, 2, "+"), *ends, *splits])
        dots.append((_place(page, c.row), f"{c.row} against {c.baseline}", mean, low, high))
    header = ["row", "baseline", "difference", "from", "to", "splits", "wins", "ties", "losses"]
    caption = "Paired differences of the selected test accuracies, in points, with 95 % bootstrap intervals"
    drawn = charts.intervals(caption, dots)
    told = dict.fromkeys([note for c in story.differences for note in c.notes] + story.notes)
    return "".join(
        [
            "<h3>Paired differences</h3>",
            table(caption, header, lines, 2),
            f'<div class="charts">{figure("Difference in points", drawn)}</div>'
            if len(dots) <= CHARTED
            else "",
            '<p class="note">The interval is about other trials and other outcomes of the search, not about '
            "other test domains or search spaces; read it as rough.</p>",
            *(f'<p class="note">{escape(note)}</p>' for note in told),
        ]
    )


def _search(story: SetStory, page: Page) -> str:
    if not story.rows:
        return ""
    budgets = table(
        "Tuning budget of each row", ["row", "budget"], [[text(r.label), text(r.budget)] for r in story.rows], 2
    )
    figures = []
    for row in story.rows:
        points = [(100 * d.validation, 100 * d.test, d.chosen, _words(d)) for d in row.draws]
        label = f"{row.label}: validation and test accuracy of each draw"
        args = (label, _place(page, row.label), points, "validation accuracy (%)", "test accuracy (%)")
        figures.append(figure(row.label, charts.scatter(*args)))
    return "".join(
        [
            f"<h3>Hyper-parameter search</h3>{budgets}",
            '<p class="note">One mark for each run; training-domain selection chose the filled diamonds.</p>',
            f'<div class="charts">{"".join(figures)}</div>',
            *(details(f"Draws of {row.label}", _draws(row)) for row in story.rows),
        ]
    )


def _words(draw: Draw) -> str:
    scores = f"validation {100 * draw.validation:.1f}, test {100 * draw.test:.1f}"
    return f"{draw.where}, trial {draw.trial}, draw {draw.draw}: {scores}"


def _draws(row: RowStory) -> str:
    lines = [
        [
            text(d.where),
            plain(d.trial, 0),
            plain(d.draw, 0),
            plain(100 * d.validation, 2),
            plain(100 * d.test, 2),
            text("chosen" if d.chosen else ""),
            text(d.settings),
        ]
        for d in row.draws
    ]
    part = (
        f", the {len(row.draws)} of {row.count} with the highest validation"
        if row.count > len(row.draws)
        else ""
    )
    header = ["test domain", "trial", "draw", "validation (%)", "test (%)", "selection", "hyper-parameters"]
    return table(f"Draws of {row.label}{part}", header, lines)


def _averages(page: Page) -> str:
    if not page.averages:
        return ""
    inner = "".join(_selection(selection, page) for selection in page.averages)
    return (
        f'<section aria-labelledby="averages"><h2 id="averages">Averages over data sets</h2>{inner}</section>'
    )


def _ending(page: Page) -> str:
    known = [[text(key), text(value), plain(runs, 0)] for (key, value), runs in page.versions.items()]
    parts = ['<section aria-labelledby="about"><h2 id="about">Versions and problems</h2>']
    parts.append(table("What the runs ran on, by meta.json", ["what", "which", "runs"], known, 2))
    if page.unfinished:
        lines = [[text(x) for x in run[:3]] + [text(run[3], "text wrap")] for run in page.unfinished[:LISTED]]
        title = f"{_count(len(page.unfinished), 'run')} not complete{_first(page.unfinished)}"
        parts.append(table(title, ["run", "data set", "row", "why"], lines, 4))
    parts.append("<h3>Problems</h3>")
    if not page.problems:
        parts.append("<p>Every file of the runs could be read.</p>")
    else:
        parts.append(f"<p>{_count(len(page.problems), 'problem')}{_first(page.problems)}:</p>")
        items = "".join(f"<li>{escape(problem)}</li>" for problem in page.problems[:LISTED])
        parts.append(f"<ul>{items}</ul>")
    return "".join([*parts, "</section>"])


def _first(items: Sequence[object]) -> str:
    return f", the first {LISTED} of them" if len(items) > LISTED else ""
