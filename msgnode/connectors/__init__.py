"""Connectors: components whose answers come from outside the bus (registries, identity, QoS)."""
