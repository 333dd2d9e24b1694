"""The memory caps of shared GPUs: how large they are, and how they are written into a pod."""
