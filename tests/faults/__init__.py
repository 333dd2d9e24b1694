"""Faults, each under a steady load of reviews of which every reply is checked: how many of them fail, and how."""
