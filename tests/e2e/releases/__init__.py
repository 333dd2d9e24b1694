"""Other releases of Kubernetes, on which the tests of a cluster run: each folder pins the programs of one."""
