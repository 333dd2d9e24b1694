"""The webhook: HTTP over TLS, the processes that serve it, and the application that answers reviews."""
