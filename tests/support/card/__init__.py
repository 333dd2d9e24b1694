"""Simulates cards: one library replaces NVML, CUDA's driver and its runtime, and keeps its state in a file."""
