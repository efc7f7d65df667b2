"""Sandboxes: confined processes that run the scripts of others, for peers and connectors."""
