"""Empty figures, and how they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.report.curves import Table, write_csv

from ._base import PaperError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Any]]:
    """A figure outside pyplot, so that nothing stays open, and its axes row by row."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as problem:
        raise PaperError(
            'Figures need matplotlib, not installed here; run pip install "genie-dg[report]" and try again.'
        ) from problem
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, [ax for row in axes for ax in row]


def save_picture(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """The picture as PNG and PDF, always with the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    png, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    figure.savefig(png)
    figure.savefig(pdf, metadata={"CreationDate": None})
    return png, pdf


def save(figure: Figure, folder: Path, name: str, data: Table) -> tuple[Path, ...]:
    """The picture, and its numbers as CSV beside it."""
    png, pdf = save_picture(figure, folder, name)
    return png, pdf, write_csv(png, data)
