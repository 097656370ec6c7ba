"""Compiler passes, one a file."""
