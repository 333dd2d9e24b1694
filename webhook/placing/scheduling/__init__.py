"""Simulates kube-scheduler: on which node a pod lands, which pods it evicts, and why it waits."""
