"""Examines an installation: checks that all its parts exist and work."""
