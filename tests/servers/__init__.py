"""Daphne and Twisted as the node uses them: framing, turns, lost connections, collections.

With the event loop and sockets, without a node. test_daphne_internals says which private names are
used. That a frame is answered with its close code is in tests/conformance/test_protocol_errors.py.
"""
