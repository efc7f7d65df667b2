"""Registries behind the node: its own, one over HTTP, and what a runtime's end does to entries.

- test_registry_requests: each form of a message is which call (pure)
- test_embedded_registry, test_remote_registry, test_ended_runtimes: the connector against a
  database, an HTTP server that misbehaves, a registry that fails
- test_registry_e2e: the cases of docs/reference/registry.md that need a node and its sockets

What the registry itself decides is in tests/registry, whose entries may be changed in
tests/ownership.
"""
