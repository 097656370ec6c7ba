"""The npulse command."""

from npulse.sw.cli.app import main

__all__ = ["main"]
