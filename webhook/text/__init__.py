"""Writes text for people: values and lists in messages, spelling, tables, plots, and lines of a terminal."""
