"""Examines an installation: checks that everything it needs is there and works."""
