"""Arithmetic units: multiplier, requantiser."""
