"""Predicts on which nodes pods would land, by simulating kube-scheduler's rules on the cluster's objects."""
