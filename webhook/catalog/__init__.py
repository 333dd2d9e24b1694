"""Tables of vendor knowledge: the ways to a GPU, and the paths of pod templates in each kind."""
