"""Garbage of every kind: nothing a client sends crashes, hangs or desynchronises a session."""
