"""Estimates the cycles of a layer from the closed forms of the machine."""

from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.sw.targets.tpu_v1.chunks import choose_chunk, layer_cycles
from npulse.sw.targets.tpu_v1.constants import pass_tile_counts
from npulse.sw.targets.tpu_v1.layers import Layer
from npulse.sw.targets.tpu_v1.regions import geometry_of

__all__ = ["layer_estimate"]


def layer_estimate(config: TpuV1Config, layer: Layer) -> int | None:
    """Cycles of a layer, without fill and drain; None when a window does not fit a chunk."""
    geometry = geometry_of(layer)
    counts = pass_tile_counts(config, layer)
    chunk = choose_chunk(config, geometry, max(counts))
    if chunk is None:
        return None
    return sum(layer_cycles(config, geometry, chunk, tiles) for tiles in counts)
