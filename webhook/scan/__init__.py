"""Judging without the webhook: files, live clusters, and two policies side by side."""
