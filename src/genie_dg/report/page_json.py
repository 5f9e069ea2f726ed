"""The numbers of a page as JSON that may stand inside its markup."""

from __future__ import annotations

import json
from typing import Any

from .page_data import Page


def safe_json(data: Any) -> str:
    r"""JSON that cannot end the element around it.

    >>> safe_json({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'
    """
    raw = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return raw.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def numbers(page: Page) -> dict[str, Any]:
    """The tables and curves as plain data; accuracies from 0 to 1, to five digits."""
    chosen = [s for story in page.sets for s in story.selections] + page.averages
    return {
        "tables": [
            {
                "title": found.title,
                "kind": found.kind,
                "selection": found.method,
                "columns": list(found.columns),
                "lines": [
                    {
                        "row": page.labels[line.row],
                        "source": line.source,
                        "mean": [_five(cell.mean) for cell in line.cells],
                        "error": [_five(cell.error) for cell in line.cells],
                    }
                    for line in found.lines
                ],
            }
            for selection in chosen
            for found in selection.tables
        ],
        "curves": [
            {"data": story.name, "name": chart.title, "row": s.label, "step": s.steps, "value": s.values}
            for story in page.sets
            for chart in story.charts
            for s in chart.series
        ],
    }


def _five(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
