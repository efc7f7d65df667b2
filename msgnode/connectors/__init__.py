"""Components whose answers come from outside the bus: registries, identity management, QoS."""
