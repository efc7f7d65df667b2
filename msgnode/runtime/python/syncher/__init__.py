"""Data objects: a hyperty reports its own and observes those of others."""
