"""Writes a policy that fits a cluster, and tests of it, for `slicewarden policy init`."""
