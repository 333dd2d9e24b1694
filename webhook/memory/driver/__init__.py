"""Limits that NVIDIA's driver sets on the GPU memory of a container."""
