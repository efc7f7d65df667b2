"""The vocabulary of the node: pure values; no Django, no I/O, no imports from other packages."""
