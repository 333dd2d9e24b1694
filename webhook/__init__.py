"""Slicewarden: admission control for shared GPUs on Kubernetes."""
