"""The one way through: a request, facts and a policy in; a verdict out."""
