"""Reads YAML and JSON documents as Kubernetes does, with their line numbers."""
