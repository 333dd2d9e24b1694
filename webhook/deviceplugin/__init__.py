"""Reads sharing configurations as NVIDIA's device plugin does."""
