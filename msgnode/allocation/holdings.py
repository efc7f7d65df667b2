"""The addresses one session holds, found by address and by allocation key. Pure.

The cost of releasing an address does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Holdings:
    """`keys` are the addresses, each with its allocation key, "" for none."""

    __slots__ = ("_blocks", "keys")

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        self.keys: dict[str, str] = {}
        self._blocks: dict[str, dict[str, None]] = {}  # allocation key -> its addresses
        for address, key in (keys or {}).items():
            self.add(address, key)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, address: str, key: str) -> None:
        """Add an address, under an allocation key."""
        self.remove(address)
        self.keys[address] = key
        if key:
            self._blocks.setdefault(key, {})[address] = None

    def remove(self, address: str) -> None:
        """Remove an address."""
        key = self.keys.pop(address, "")
        block = self._blocks.get(key)
        if block is not None:
            block.pop(address, None)
            if not block:
                del self._blocks[key]

    def named(self, items: Iterable[str]) -> dict[str, str]:
        """The addresses named by `items` (addresses and allocation keys), with their keys."""
        found: dict[str, str] = {}
        for item in items:
            if item in self.keys:
                found[item] = self.keys[item]
            for address in self._blocks.get(item, ()):
                found[address] = item
        return found
