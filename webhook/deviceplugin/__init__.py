"""NVIDIA's device plugin as a reader of sharing configurations."""
