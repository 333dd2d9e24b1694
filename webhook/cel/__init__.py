"""Writes expressions in CEL, in which an API server's conditions and admission policies are written."""
