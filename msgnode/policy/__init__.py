"""The policy engine in a worker: its snapshot, its facts about the node, its log."""
