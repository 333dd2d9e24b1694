"""Contains the code that tests share. A test imports from here, and never from another test."""
