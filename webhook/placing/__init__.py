"""On which nodes pods would land: the cluster's objects, played through kube-scheduler's rules."""
