"""TPU v1 style: CISC instructions, four overlapped units, a weight-stationary array."""
