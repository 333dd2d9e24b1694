"""Connects to a live cluster: watches and lists it, and writes Events and certificates into it."""
