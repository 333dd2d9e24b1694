"""A snapshot of the cluster, as a value."""
