"""Rules are asked only about pods with a trait that they look at, and no finding is lost by that."""
