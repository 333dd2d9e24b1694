"""Follows a kustomization by its files: resources, components, patches, generators, names, namespaces and images."""
