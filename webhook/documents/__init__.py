"""YAML and JSON documents with their line numbers, read as Kubernetes reads them."""
