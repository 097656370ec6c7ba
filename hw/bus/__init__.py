"""AXI4 and AXI4-Lite signatures, and the control and status registers."""
