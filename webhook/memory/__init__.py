"""Computes the memory caps of pods on shared GPUs, and how they are written into a pod."""
