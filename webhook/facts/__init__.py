"""The cluster at one moment, as a value."""
