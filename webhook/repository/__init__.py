"""Reads the files of a repository within limits, and runs the programs that render copies of them."""
