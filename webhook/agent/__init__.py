"""The agent on a GPU node: compares how much of a card each container uses with the request it was admitted with."""
