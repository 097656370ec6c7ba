"""Runners of the emitted Verilog."""
