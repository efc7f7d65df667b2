"""The policy engine: the operator decides what passes."""
