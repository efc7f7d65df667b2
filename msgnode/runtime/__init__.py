"""The runtime's side of the node: a bus and the protostub, for Python programs, tools and tests."""
