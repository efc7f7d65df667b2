"""Nothing of others: what belongs to somebody, tried by a stranger over real sockets.

Each test runs for who is anonymous and who is logged in, and (long) at two workers in turn: what
is here is that admission, registry, routes and the guard of responses work together. The rules are
units: tests/bus/test_ownership.py, test_routes.py, test_response_guard.py; names that look alike
are in tests/conformance/test_names.py.
"""
