"""Grids of processing elements."""
