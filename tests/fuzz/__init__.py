"""Garbage of every kind over a socket: nothing a client sends crashes, hangs or desynchronises.

The reading of single frames is proven by properties in tests/core/test_messages.py.
"""
