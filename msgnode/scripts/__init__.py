"""Connectors that are scripts, which run in a sandbox behind the port of a connector."""
