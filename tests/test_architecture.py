"""The packages as they are drawn: the page shows the imports there are, none goes in a circle."""

from __future__ import annotations

from tests import architecture

MAX_LINES = 700
LONGER = {
    "msgnode/core/explanations.py": "one table of texts",
    "msgnode/runtime/python/protostub.py": "one file, as the catalogue serves it",
}
"""Files that may have more lines, and why."""


def test_no_module_and_no_package_imports_itself_by_way_of_others() -> None:
    modules = architecture.modules()
    assert architecture.circles(modules) == []
    assert architecture.circles(architecture.packages(modules)) == []


def test_a_circle_would_be_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert architecture.circles(graph) == [["b", "c"]]


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    files = {
        str(path.relative_to(architecture.ROOT)): len(path.read_text().splitlines())
        for package in architecture.PACKAGES
        for path in (architecture.ROOT / package).rglob("*.py")
        if "migrations" not in path.parts and "tests" not in path.parts
    }
    assert len(files) > 300
    assert {name for name, lines in files.items() if lines > MAX_LINES} <= set(LONGER)


def test_the_page_shows_the_imports_there_are() -> None:
    page = architecture.PAGE.read_text()
    assert architecture.written(page) == page, "run `make drawing`"
