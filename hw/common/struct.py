"""Signals with a structure, under the type that they have."""

from typing import cast

from amaranth.hdl import ShapeLike, Signal
from amaranth.lib import data

__all__ = ["struct"]


def struct(layout: ShapeLike, *, name: str, reset_less: bool = False) -> data.View:
    """Signal of a layout; `Signal` itself is declared to return a plain signal."""
    return cast(data.View, Signal(layout, name=name, reset_less=reset_less))
