"""The webhook: processes, TLS, and the application that answers reviews."""
