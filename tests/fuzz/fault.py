"""Describe what a case has shown to be wrong."""


class Fault(AssertionError):
    """Something that must never be was; the text says what, and is the same for every case that shows it."""
