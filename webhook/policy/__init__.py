"""Defines the types of an organisation's policy, and reads policies from files and objects."""
