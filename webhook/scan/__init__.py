"""Judges objects without the webhook: in files and live clusters, and under two policies side by side."""
