"""Share code between tests. A test imports from here, and never from another test."""
