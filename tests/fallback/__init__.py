"""Look at the parts of the fallback. `tests/evaluator` asks the API server's own code what it does."""
