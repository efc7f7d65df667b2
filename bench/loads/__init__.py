"""What the load generator can do to a server: one module a load."""
