"""Contract of hardware and software: configurations, ISA, numbers, registers; plain Python."""
