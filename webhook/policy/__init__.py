"""The policy of an organisation: its types, and the reader of its file."""
