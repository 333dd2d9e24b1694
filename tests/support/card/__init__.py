"""Pretended cards: one library under the names of NVML, CUDA's driver and its runtime, above a file of their state."""
