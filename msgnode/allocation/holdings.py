"""What one session holds: its addresses, found by themselves and by their allocation key. Pure.

Giving an address back costs the same however many there are.
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
        """The session holds this address, under this allocation key, from now on."""
        self.remove(address)
        self.keys[address] = key
        if key:
            self._blocks.setdefault(key, {})[address] = None

    def remove(self, address: str) -> None:
        """The session holds this address no longer."""
        key = self.keys.pop(address, "")
        block = self._blocks.get(key)
        if block is not None:
            block.pop(address, None)
            if not block:
                del self._blocks[key]

    def named(self, items: Iterable[str]) -> dict[str, str]:
        """Those of the addresses that `items`, addresses and allocation keys, name; with keys."""
        found: dict[str, str] = {}
        for item in items:
            if item in self.keys:
                found[item] = self.keys[item]
            for address in self._blocks.get(item, ()):
                found[address] = item
        return found
