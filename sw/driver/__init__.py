"""One device protocol over every way to run a core."""
