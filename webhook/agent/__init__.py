"""The agent on a node with GPUs: what each container takes of a card, joined with what its pod was admitted with."""
