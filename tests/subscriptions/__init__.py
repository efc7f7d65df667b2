"""The subscription manager: which addresses a request names, what may be subscribed, when it holds.

With a writer that commits when told to; over sockets: cases 29 to 40 in
tests/conformance/test_subscriptions.py.
"""
