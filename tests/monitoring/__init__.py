"""Alerts and dashboard, read and tried by the code of Prometheus."""
