"""The agent on a GPU node: compares each container's use of a card with the request that its pod was admitted with."""
