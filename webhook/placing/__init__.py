"""Predicts on which nodes pods would run, by simulating kube-scheduler's rules on the cluster's objects."""
