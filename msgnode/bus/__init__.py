"""The message bus: pipeline (the only entry point), routing table, routes and delivery."""
