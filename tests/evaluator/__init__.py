"""The fallback against the engine, by the API server's own code. Run by path: `pytest tests/evaluator`; needs Go."""
