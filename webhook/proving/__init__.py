"""Proves on a cluster that no known way to a GPU is open: a table of ways, and a test pod (a probe) for each."""
