"""The npulse command."""
