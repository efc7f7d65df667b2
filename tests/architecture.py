"""The packages and who imports whom, read from the source; `make drawing` draws them.

The drawing stands in docs/architecture.md between two marks. An arrow is left out where a longer
way leads to the same package, so what is below a package is what it may use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- imports: written by tests/architecture.py -->", "<!-- end of imports -->"
PACKAGES = ("msgnode", "policies", "registry", "spark")
_NOT_DRAWN = {"msgnode.migrations"}

Graph = Mapping[str, set[str]]


def modules() -> Graph:
    """Which module imports which, imports for type checkers included."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}


def packages(graph: Graph) -> dict[str, set[str]]:
    """Which package imports which: those in `msgnode` one by one, the others whole.

    `spark.jobs` stands by itself: it imports nothing of ours, and is shipped to executors alone.
    """
    found: dict[str, set[str]] = {}
    for name, imported in graph.items():
        if name == "msgnode":
            continue
        own = _package(name)
        others = {_package(other) for other in imported if other != "msgnode"}
        found.setdefault(own, set()).update(others - {own})
    return {name: others for name, others in found.items() if name not in _NOT_DRAWN}


def circles(graph: Graph) -> list[list[str]]:
    """Groups of names that import one another, directly or by way of others."""
    below = {name: _below(graph, name) for name in graph}
    groups = {
        tuple(sorted(other for other in below[name] if name in below.get(other, ())))
        for name in graph
        if name in below[name]
    }
    return [list(group) for group in sorted(groups)]


def drawing() -> str:
    """The packages as a Mermaid flow chart, from the entry points down."""
    graph = packages(modules())
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {name}" for name, others in sorted(_shown(graph)) if not others]
    for name, others in sorted(_shown(graph)):
        lines += [f"    {name} --> {' & '.join(sorted(others))}"] if others else []
    return "\n".join([*lines, "```"])


def written(page: str) -> str:
    """The page with the drawing in it."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{drawing()}\n{END}{tail}"


def _package(name: str) -> str:
    if name.startswith("spark.jobs"):
        return "spark.jobs"
    parts = name.split(".")
    return ".".join(parts[: 2 if parts[0] == "msgnode" else 1])


def _below(graph: Graph, name: str) -> set[str]:
    seen: set[str] = set()
    ahead = list(graph[name])
    while ahead:
        other = ahead.pop()
        if other not in seen:
            seen.add(other)
            ahead += graph.get(other, ())
    return seen


def _shown(graph: Graph) -> Iterator[tuple[str, set[str]]]:
    """Each package with those it imports that no other of these leads to."""
    for name, others in graph.items():
        further = set().union(*(_below(graph, other) for other in others)) if others else set()
        yield _short(name), {_short(other) for other in others - further}


def _short(name: str) -> str:
    return name.removeprefix("msgnode.")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
