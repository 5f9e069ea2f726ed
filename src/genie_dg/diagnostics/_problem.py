"""The one exception of this room: a whole sentence about why something cannot be measured."""

from __future__ import annotations


class MeasurementError(ValueError):
    """What came cannot be measured; the message says what came, what is allowed and what to do."""
