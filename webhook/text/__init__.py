"""Text for people: values and lists in messages, spelling, tables, the width of a terminal."""
