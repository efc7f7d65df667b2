"""The policy files that come with the node (policies/defaults): never in force by themselves."""

from __future__ import annotations

from pathlib import Path

from .transfer import Bundle, read_bundle

FOLDER = Path(__file__).parent / "preset_documents"


def names() -> list[str]:
    """The names of the files."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def bundle(name: str) -> Bundle:
    """One of them. KeyError if there is none of the name."""
    if name not in names():
        raise KeyError(name)
    return read_bundle((FOLDER / f"{name}.json").read_bytes())


def summary(name: str) -> str:
    """Its description."""
    return " ".join(str(each.get("description", "")) for each in bundle(name).document)
