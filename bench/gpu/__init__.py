"""Tests and measures memory caps and the agent on a real card: `python -m bench.gpu`."""
