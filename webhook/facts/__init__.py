"""Makes and keeps the facts: an immutable snapshot of the cluster, which rules read."""
