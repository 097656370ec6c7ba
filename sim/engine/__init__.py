"""Compiles an Amaranth netlist to native code."""
