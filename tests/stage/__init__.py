"""What tests of several rooms stand on, between single fakes and whole nodes.

- bus.py: a pipeline between two sessions, and parts that keep what they are asked
- worker.py: a whole worker in the test's process, and runtimes at it without a socket between

Single stand-ins (a clock, a session, a link, a writer) are in tests/fakes.py, a runtime over a real
socket in tests/client.py, a node in tests/node.py, two workers of one in tests/e2e/pair.py, waiting
in tests/waiting.py. What one room alone needs stands in its folder.
"""
