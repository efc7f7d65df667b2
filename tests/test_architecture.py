"""The house as it is drawn: the page shows the imports there are, and none goes in a circle."""

from __future__ import annotations

from tests import architecture


def test_no_module_and_no_package_imports_itself_by_way_of_others() -> None:
    modules = architecture.modules()
    assert architecture.circles(modules) == []
    assert architecture.circles(architecture.packages(modules)) == []


def test_a_circle_would_be_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert architecture.circles(graph) == [["b", "c"]]


def test_the_page_shows_the_imports_there_are() -> None:
    page = architecture.PAGE.read_text()
    assert architecture.written(page) == page, "run `make drawing`"
