"""Contract of hardware and software: configurations, ISA, number formats, registers; no Amaranth."""
