"""Lets containers take turns on a contended GPU, by the kernel's cgroup freezer. Experimental, and off by default.

It ran on two real GPUs (docs/evidence/gpu.md), but never in a cluster with one. A policy turns it on for a pool
(`contention.mode`).
"""
