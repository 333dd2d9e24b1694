"""Writes logs and metrics, and shows progress."""
