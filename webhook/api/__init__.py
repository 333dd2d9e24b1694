"""Reads Kubernetes objects: their fields, the pods in them, selectors, and AdmissionReviews; writes patches."""
