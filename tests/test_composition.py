"""How a worker is put together: each part is whole when it is made, none is changed from outside.

A part that is set something afterwards can be used before that, and nobody who reads it knows who
does it. What two parts need of one another is split off, and made before both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import ROOT

FILES = [*sorted((ROOT / "msgnode/node").glob("*.py")), ROOT / "msgnode/workers/cluster.py"]


def faults(source: str) -> list[str]:
    """What is set at another object, or reaches back to one that is not whole yet; by line."""
    return [f"{line}: {what}" for line, what in sorted(_faults(ast.parse(source)))]


def _faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) if not _is_self(node.value):
                yield node.lineno, ast.unparse(node)
            case ast.Subscript(ctx=ast.Store() | ast.Del(), value=ast.Attribute() as held):
                if not _is_self(held.value):
                    yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name("setattr" | "delattr")):
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr="__setattr__" | "__delattr__")):
                yield node.lineno, ast.unparse(node)
            case ast.Lambda() if any(_is_self(each) for each in ast.walk(node.body)):
                yield node.lineno, ast.unparse(node)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_part_is_set_anything_after_it_was_made(path: Path) -> None:
    assert faults(path.read_text()) == []


def test_the_files_that_wire_are_all_looked_at() -> None:
    names = {each.name for each in FILES}
    assert {"parts.py", "worker.py", "cluster.py", "federation.py", "invitations.py"} <= names


@pytest.mark.parametrize(
    "line",
    [
        "part.foreign = made",
        "self.part.foreign = made",
        "self.replies.barrier, self.found = barriers",
        "cluster.rpc.calls[KIND] = answer",
        "self.part.calls[KIND] = answer",
        "self.sessions.on_closed += [closed]",
        "part.limit: int = 3",
        "del self.part.limit",
        "for part.limit in range(3): pass",
        "setattr(part, 'limit', 3)",
        "object.__setattr__(part, 'limit', 3)",
        "Part(lambda: self.other)",
    ],
)
def test_what_sets_a_part_something_would_be_seen(line: str) -> None:
    assert len(faults(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "self.part = Part(other)",
        "self.first, self.second = both",
        "self.found[key] = part",
        "found[key] = part",
        "sessions.on_closed.append(part.closed)",
        "Part(lambda: lease.is_held)",
    ],
)
def test_what_makes_a_part_or_tells_it_who_listens_passes(line: str) -> None:
    assert faults(line) == []
