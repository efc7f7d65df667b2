"""The vocabulary of the node: pure values, no Django, no I/O, nothing of the other packages."""
