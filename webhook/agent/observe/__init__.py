"""Observes the GPUs of a node: how much of each card each container uses, and how the container was admitted."""
