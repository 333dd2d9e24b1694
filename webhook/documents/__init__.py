"""Reads YAML and JSON documents as Kubernetes does, and knows the line of each value."""
