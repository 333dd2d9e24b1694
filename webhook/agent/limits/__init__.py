"""Enforces the policy on a node: memory limits by the driver, evictions and kills, and the taint for a dead GPU."""
