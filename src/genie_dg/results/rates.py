"""The picture of a search for the learning rate: the loss that each rate reached, and the choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .figures import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class RateData:
    """The numbers of a search for the learning rate, as ``genie_dg.optim.SuggestedRate`` has them."""

    chosen: float
    lrs: Sequence[float]
    losses: Sequence[float]
    first_loss: float
    sweep_lrs: Sequence[float]
    sweep_losses: Sequence[float]


def plot_rates(data: RateData, ax: Axes | None = None) -> Axes:
    """Draw the loss against the rate: of the sweep a faint line, of each short training a point.

    A cross marks a training that exploded. The view is that of the short trainings, from somewhat below their
    lowest loss to somewhat above the loss at the start, because what explodes would hide the rest.
    """
    ax = new_axes() if ax is None else ax
    points = list(zip(data.lrs, data.losses, strict=True))
    finite = [(lr, loss) for lr, loss in points if math.isfinite(loss)]
    low = min([loss for _, loss in finite], default=data.first_loss)
    margin = 0.1 * (data.first_loss - low) or 0.1 * abs(data.first_loss) or 1.0
    top = data.first_loss + 2 * abs(margin)
    ax.plot(data.sweep_lrs, data.sweep_losses, color="0.75", linewidth=1.2, label="sweep")
    ax.axhline(data.first_loss, color="0.5", linestyle=":", linewidth=1.0, label="at the start")
    shown = [(lr, min(loss, top)) for lr, loss in finite]
    ax.plot(*zip(*shown, strict=True), "-o", color=COLOURS[0], linewidth=1.8, label="short trainings")
    if exploded := [lr for lr, loss in points if not math.isfinite(loss)]:
        ax.plot(exploded, [top] * len(exploded), "x", color=COLOURS[1], label="exploded", clip_on=False)
    ax.axvline(data.chosen, color=COLOURS[2], linestyle="--", linewidth=1.8, label=f"lr {data.chosen:g}")
    ax.set_xscale("log")
    ax.set_xlim(min(data.lrs) / 10, max(data.lrs) * 2)
    ax.set_ylim(low - abs(margin), top + 0.5 * abs(margin))
    ax.set_xlabel("learning rate")
    ax.set_ylabel("loss")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25)
    ax.legend(loc="lower left", frameon=False)
    return ax
