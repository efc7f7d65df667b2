"""The policy engine in a worker: its snapshot, its attribute source, its log."""
