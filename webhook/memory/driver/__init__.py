"""Handles limits on the GPU memory of a container that NVIDIA's driver enforces."""
