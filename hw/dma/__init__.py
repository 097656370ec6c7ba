"""Movers between AXI4 memory and on-chip lanes."""
