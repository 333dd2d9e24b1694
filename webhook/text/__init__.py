"""Words in messages: values, lists, spelling, tables, the width of a terminal."""
