"""Judges requests by the rules, and makes the webhook configurations by which an API server decides what to send."""
