"""The message bus: one door in (pipeline), a routing table, routes as values, delivery."""
