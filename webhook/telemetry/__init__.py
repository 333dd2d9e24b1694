"""Logs, metrics and progress."""
