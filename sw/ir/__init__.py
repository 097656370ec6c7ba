"""xDSL dialects: graph, tile, and one a family."""
