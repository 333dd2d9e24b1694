"""Reads and runs PolicyTests: objects with the verdicts that a policy is expected to give."""
