"""Looks through reshapes and transposes: which stored tensor a value is, and in which order.

A value that comes from layout operators only needs no copy where its reader can permute its own
weights instead. A `View` says so: the stored value, its shape as an image (H, W, C), and for each
element of the viewed tensor the flat index of the stored element.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from npulse.sw.ir.graph import ReshapeOp, TransposeOp
from npulse.sw.ir.types import ints, type_of

__all__ = ["View", "image_shape", "views"]


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(H, W, C) of a tensor of at most 4 axes with a batch of 1; None for any other.

    A matrix (M, K) is M pixels of K channels.
    """
    if len(shape) == 4 and shape[0] == 1:
        return shape[1], shape[2], shape[3]
    if len(shape) == 3 and shape[0] == 1:
        return 1, shape[1], shape[2]
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    if len(shape) == 1:
        return 1, 1, shape[0]
    return None


@dataclass(frozen=True)
class View:
    """A stored value seen through layout operators."""

    base: SSAValue
    image: tuple[int, int, int]  #: (H, W, C) of the stored value.
    order: NDArray[np.int64]  #: Flat index in the stored value, in the shape of the viewed one.

    @property
    def in_order(self) -> bool:
        """Whether the elements lie in the order in which the viewed tensor has them."""
        return bool((self.order.ravel() == np.arange(self.order.size)).all())

    @property
    def channels_kept(self) -> bool:
        """Whether the last axis of the viewed tensor is the channels, pixels in order."""
        return self.in_order and self.order.shape[-1:] == (self.image[2],)


def views(value: SSAValue) -> list[View]:
    """All views of a value, from the furthest stored value to the value itself."""
    chain = [value]
    while isinstance(chain[-1].owner, ReshapeOp | TransposeOp):
        chain.append(SSAValue.get(chain[-1].owner.input))
    found = []
    for depth in reversed(range(len(chain))):
        shape = type_of(chain[depth]).get_shape()
        image = image_shape(shape)
        if image is None or not math.prod(shape):
            continue
        order = np.arange(math.prod(shape)).reshape(shape)
        for step in reversed(chain[:depth]):
            layout = step.owner
            if isinstance(layout, TransposeOp):
                order = order.transpose(ints(layout.permutation))
            order = order.reshape(type_of(step).get_shape())
        found.append(View(chain[depth], image, order))
    return found
