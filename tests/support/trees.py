"""The type of a function by which a test writes the files of a repository."""

from collections.abc import Callable

from webhook.repository.tree import Tree

Write = Callable[[dict[str, str]], Tree]
"""Writes texts to files below the top of a repository, and returns its tree."""
