"""Back ends, one package a family."""
