"""What the organisation allows, and the file that says so."""
