"""Look at the parts of the floor. `tests/evaluator` asks the API server's own code what it does."""
