"""Compiler, driver and command line."""
