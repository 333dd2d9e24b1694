"""The usage of shared cards over time: how it is counted, where a node keeps it, and how it is read."""
