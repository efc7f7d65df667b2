"""Scripts of connectors: what they may do, and what becomes of calls when they do something else.

- test_scripts: a script in a real sandbox behind its port: calls, requests, secrets, store, ends
- the ports themselves are proven by script where the part that they replace is (case 75):
  tests/connectors, tests/qos, tests/identity; pages, REST and command in tests/console
"""
