"""Examines an installation: what it needs, and whether that is there."""
