"""How a worker is put together: each part is whole when it is made, none is changed from outside.

A part that is set something afterwards can be used before that, and nobody who reads it knows who
does it. What two parts need of one another is split off, and made before both; who only wants to
hear what a part does enters itself in a list of that part.

Three rules: the files that wire set no part anything; no constructor sets itself, what it does or a
lambda at another part; and no class has a place that somebody else is to fill.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture import ROOT

MADE = ROOT / "msgnode"
WIRING = [
    *sorted((MADE / "node").glob("*.py")),
    MADE / "workers/cluster.py",
    MADE / "workers/network.py",
    MADE / "qos/service.py",
    MADE / "servers/main.py",
]
ALL = [
    path
    for package in ("msgnode", "policies", "registry", "spark")
    for path in sorted((ROOT / package).rglob("*.py"))
    if MADE / "runtime" not in path.parents
]
_OF_A_LINK = "A link is there before the connection that it carries: it says what it is to be told."
PLACES = {
    "msgnode/sessions/frame_connection.py": _OF_A_LINK,
    "msgnode/devices/link.py": _OF_A_LINK,
    "msgnode/devices/mqtt/link.py": _OF_A_LINK,
    "msgnode/federation/peer_session.py": _OF_A_LINK,
    "msgnode/legacy/connection.py": _OF_A_LINK,
    "msgnode/servers/socket_link.py": _OF_A_LINK,
    "msgnode/sessions/session.py": "What a session does with a frame depends on where it is now.",
}
"""Files with a class that has such a place, and why."""


def faults(source: str) -> list[str]:
    """What is set at another object, or reaches back to one that is not whole yet; by line."""
    return _by_line(_set_afterwards, source)


def handed(source: str) -> list[str]:
    """What a constructor sets at another object so that this one reaches back; by line."""
    return _by_line(_handed, source)


def places(source: str) -> list[str]:
    """What somebody else is to set at the objects of a class once they are made; by line."""
    return _by_line(_places, source)


def _by_line(rule: Callable[[ast.Module], Iterator[tuple[int, str]]], source: str) -> list[str]:
    return [f"{line}: {what}" for line, what in sorted(rule(_parsed(source)))]


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _set_afterwards(tree: ast.Module) -> Iterator[tuple[int, str]]:
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


def _handed(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in _in_constructors(tree.body):
        if isinstance(node, ast.Assign) and _reaches_back(node.value):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and not _is_self(target.value):
                    yield node.lineno, ast.unparse(target)


def _places(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Public attributes without a value, or with a callable that the constructor was not given."""
    for node in _in_constructors(tree.body):
        match node:
            case ast.AnnAssign(target=ast.Attribute(value, attr), annotation=kind, value=given):
                is_callable = ast.unparse(kind).startswith("Callable[")
            case ast.Assign(targets=[ast.Attribute(value, attr)], value=given):
                is_callable = isinstance(given, ast.Lambda)
            case _:
                continue
        if _is_self(value) and not attr.startswith("_") and (given is None or is_callable):
            yield node.lineno, f"self.{attr}"


def _in_constructors(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _in_constructors(node.body)
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from ast.walk(node)


def _reaches_back(value: ast.AST) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Attribute(value=held):
            return _is_self(held)
        case _:
            return _is_self(value)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@pytest.mark.parametrize("path", WIRING, ids=lambda path: path.name)
def test_no_part_is_set_anything_after_it_was_made(path: Path) -> None:
    assert faults(path.read_text()) == []


def test_no_constructor_sets_itself_or_what_it_does_at_another_part() -> None:
    found = {str(each.relative_to(ROOT)): handed(each.read_text()) for each in ALL}
    assert {name: those for name, those in found.items() if those} == {}


def test_no_class_of_a_part_has_a_place_that_somebody_else_is_to_fill() -> None:
    found = {str(each.relative_to(ROOT)): places(each.read_text()) for each in ALL}
    assert {name for name, those in found.items() if those} == set(PLACES)


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
        "self.connector.describe = lambda: (self.state, '')",
        "self._node.parts.lease.on_lost = self._fence",
    ],
)
def test_what_sets_a_part_something_would_be_seen(line: str) -> None:
    assert faults(line)


@pytest.mark.parametrize(
    "line",
    [
        "names.sessions = interest.copies = self",
        "transport.links.sessions = self",
        "table.watcher = self",
        "interest.look_for = self.look_for",
        "directory.on_connected = self._connected",
        "self._client.on_connected = lambda is_new: self.on_connected()",
    ],
)
def test_a_constructor_that_reaches_back_would_be_seen(line: str) -> None:
    assert handed(f"def __init__(self): {line}")
    assert not handed(f"def later(self): {line}")


@pytest.mark.parametrize(
    "line",
    [
        "self.sessions: SessionsAtNames",
        "self.copies: SessionsAtNames",
        "self.moves: SessionHandover",
        "self.look_for: Callable[[Collection[str]], None] = lambda names: None",
        "self.is_leaving: Callable[[str], bool] = lambda session_id: False",
        "self.on_connected: Callable[[], None] = nothing",
        "self.on_lost: Callable[[str], None] = lambda why: None",
        "self.may_connect: Callable[[], bool] = lambda: True",
        "self.describe = lambda: ('off', '')",
    ],
)
def test_a_place_for_somebody_else_would_be_seen(line: str) -> None:
    assert places(f"def __init__(self): {line}")
