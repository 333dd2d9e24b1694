"""Simulated cards: one library that replaces NVML, CUDA's driver and its runtime, and keeps its state in a file."""
