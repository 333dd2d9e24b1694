"""Caps on a real card: `python -m bench.gpu`."""
