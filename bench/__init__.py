"""Measurements of the node against a bare relay on the same server: `python -m bench`."""
