"""Vector lanes behind the accumulators: requantise, clamp, pool."""
