"""Keeps a cluster's registration, certificates and fallback in step with its GPUSharingPolicy."""
