"""What a pod asks of GPUs, what it is exposed to, and where it belongs."""
