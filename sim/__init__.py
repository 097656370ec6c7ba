"""Simulation: golden numpy, RTL benches, the compiled engine, Verilog runners."""
