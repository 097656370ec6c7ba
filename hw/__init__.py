"""NPU hardware in Amaranth, and its contract with software."""
