"""The address of the node of a data directory, for commands that talk to it: `address.json`.

Written when the node is ready, removed when it ends; after a power cut it has the last address.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

_NAME = "address.json"


class Address(NamedTuple):
    """`place` is host and port as in a URL."""

    place: str
    domain: str


def write_address(data_dir: Path, address: Address) -> None:
    """Write the node's address."""
    (data_dir / _NAME).write_text(json.dumps(address._asdict()) + "\n", encoding="utf-8")


def read_address(data_dir: Path) -> Address | None:
    """The address of the node of this directory, None if none runs or it cannot be read."""
    try:
        said = json.loads((data_dir / _NAME).read_text(encoding="utf-8"))
        return Address(str(said["place"]), str(said["domain"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_address(data_dir: Path) -> None:
    """Remove the address of a node that has ended."""
    (data_dir / _NAME).unlink(missing_ok=True)
