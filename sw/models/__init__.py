"""Small models bundled with npulse, made by scripts."""
