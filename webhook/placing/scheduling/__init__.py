"""Plays kube-scheduler: on which node a pod lands, whom it evicts, and why it waits."""
