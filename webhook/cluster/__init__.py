"""A live cluster: watching it, listing it, writing events and certificates into it."""
