"""Judging without the webhook: files, live clusters, two policies side by side, tests of a policy."""
