"""The facts: an immutable snapshot of the cluster, which rules read."""
