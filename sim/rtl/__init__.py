"""Benches and simulation-only hardware."""
