"""Writes text for people: values and lists in messages, corrections of spelling, tables, and lines of a terminal."""
