"""Protostubs: those the node gives to runtimes."""
