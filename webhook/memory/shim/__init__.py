"""The shim: a short Python file that caps frameworks which read no cap from their environment.

This package also delivers the file into pods.
"""
