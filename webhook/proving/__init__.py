"""Proves on a cluster that each way to a GPU is shut: a table of ways, and a probe for each."""
