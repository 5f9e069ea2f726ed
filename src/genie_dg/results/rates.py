"""The picture of a search for the learning rate: the loss that each rate reached, and the choice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .figures import COLOURS, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_rates(rate: Any, ax: Axes | None = None) -> Axes:
    """Draw the loss against the rate: of the sweep a faint line, of each short training a point.

    A cross marks a training that exploded. The view is that of the short trainings, from somewhat below their
    lowest loss to somewhat above the loss at the start, because what explodes would hide the rest.

    Args:
        rate: of a search, as ``genie_dg.optim.SuggestedRate``.
        ax: where to draw; a new figure unless given.
    """
    ax = new_axes() if ax is None else ax
    points = list(zip(rate.lrs, rate.losses, strict=True))
    finite = [(lr, loss) for lr, loss in points if math.isfinite(loss)]
    low = min([loss for _, loss in finite], default=rate.first_loss)
    margin = 0.1 * (rate.first_loss - low) or 0.1 * abs(rate.first_loss) or 1.0
    top = rate.first_loss + 2 * abs(margin)
    ax.plot(rate.sweep_lrs, rate.sweep_losses, color="0.75", linewidth=1.2, label="sweep")
    ax.axhline(rate.first_loss, color="0.5", linestyle=":", linewidth=1.0, label="at the start")
    shown = [(lr, min(loss, top)) for lr, loss in finite]
    ax.plot(*zip(*shown, strict=True), "-o", color=COLOURS[0], linewidth=1.8, label="short trainings")
    if exploded := [lr for lr, loss in points if not math.isfinite(loss)]:
        ax.plot(exploded, [top] * len(exploded), "x", color=COLOURS[1], label="exploded", clip_on=False)
    ax.axvline(rate.lr, color=COLOURS[2], linestyle="--", linewidth=1.8, label=f"lr {rate.lr:g}")
    ax.set_xscale("log")
    ax.set_xlim(min(rate.lrs) / 10, max(rate.lrs) * 2)
    ax.set_ylim(low - abs(margin), top + 0.5 * abs(margin))
    ax.set_xlabel("learning rate")
    ax.set_ylabel("loss")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25)
    ax.legend(loc="lower left", frameon=False)
    return ax
