"""Runs the webhook: its processes, TLS, and the application that answers reviews."""
