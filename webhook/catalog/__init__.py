"""Tables of names: the ways to a GPU, and where each kind keeps its pods."""
