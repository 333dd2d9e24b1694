"""Finds the container to which a cgroup belongs."""
