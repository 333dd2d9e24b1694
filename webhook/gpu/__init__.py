"""A pod's GPU requests, its exposure to GPUs, and the pool it belongs to."""
