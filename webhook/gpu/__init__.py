"""Determines a pod's GPU requests, the ways in which it could reach other GPUs, and the pool that it belongs to."""
