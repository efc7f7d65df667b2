"""The composition root: assembles a worker of the node, starts it and stops it.

Only this package chooses stores, components and connectors and wires them (`parts`).
"""

from __future__ import annotations

from .worker import Node

__all__ = ["Node", "get_node"]

_node: Node | None = None


def get_node() -> Node:
    """The worker of this process, made at the first call."""
    global _node
    if _node is None:
        _node = Node()
    return _node
