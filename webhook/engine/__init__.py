"""Judges requests by the rules, and makes the registration that decides which requests arrive."""
