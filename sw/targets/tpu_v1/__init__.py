"""Legality, tiling and lowering to the TPU v1 instruction set."""
