"""The message bus: one way in (pipeline), a routing table, routes as values, delivery."""
