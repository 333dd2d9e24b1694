"""A real control plane, and the tests that need one."""
