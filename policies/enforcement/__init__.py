"""Decisions in the node: enforcement, attributes, log and obligations."""
