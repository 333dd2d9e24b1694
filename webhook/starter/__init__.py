"""Writes a policy, and tests of it, that fit a cluster: what `slicewarden policy init` prints."""
