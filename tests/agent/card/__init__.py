"""A pretended card: NVML built from C, whose answers are what a test writes into a file."""
