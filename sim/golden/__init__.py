"""Bit-exact operators in numpy, from the arithmetic specification alone."""
