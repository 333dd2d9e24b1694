"""Experimental, and off by default: containers take turns on a contended GPU, by the kernel's cgroup freezer.

It has never run on a real GPU. A policy turns it on for a pool (`contention.mode`).
"""
