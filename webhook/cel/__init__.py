"""Writes expressions in CEL, the language of an API server's match conditions and admission policies."""
