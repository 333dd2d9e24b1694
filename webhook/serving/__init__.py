"""The webhook: processes, TLS, HTTP, and the application that answers reviews."""
