"""The numbered cases of docs/reference/messages.md and identity.md, over real sockets.

Each number is in the name of a test (tests/test_reference.py looks that none is missing). One node
serves the short ones; those that end it or set it otherwise start their own. What a case says is
tried once, in both handshakes where they differ: combinations of inputs are the matter of the
units in tests/bus, tests/sessions, tests/core and tests/identity.

- test_limits has every limit of a session at its edge
- test_holes, test_names: what other nodes get wrong, and names that look alike
- test_field_clients, test_field_spellings: what the field's own clients do
- test_delivery, test_restart, test_storms, test_liveness: numbers, kills, floods, frozen sockets
"""
