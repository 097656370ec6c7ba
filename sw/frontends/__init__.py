"""Importers of model files into the graph dialect."""
