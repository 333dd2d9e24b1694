"""The fallback against the engine, by the API server's own code. Asked for by path: `pytest tests/evaluator`; needs Go."""
