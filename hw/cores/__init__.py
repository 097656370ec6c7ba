"""Complete NPUs, one package a family."""
