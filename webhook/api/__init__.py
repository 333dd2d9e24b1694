"""Kubernetes objects: their fields, the pods in them, selectors, patches, AdmissionReviews."""
