"""Address allocation: what a request asks for, who holds what, who held it last.

All of it without a database or a node. What is answered over a socket are cases 18 to 28 in
tests/conformance/test_allocation.py; pools are in tests/console and tests/federation.
"""
