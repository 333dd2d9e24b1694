"""What the floor is made of. `tests/evaluator` asks the API server's own code what it does."""
