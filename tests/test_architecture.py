"""The packages as they are drawn: the page shows the imports there are, none goes in a circle. And
limits of what a reader takes in at once: files, functions, constructors, modules of a few lines,
walks through several files.

Small modules stand in a list, each with its reason: who joins one takes it out.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest

from tests import architecture

pytestmark = pytest.mark.xdist_group("architecture")  # all of the source is parsed once

MAX_LINES, MANY_LINES = 700, 400  # of a file: refused, warned of
MAX_FUNCTION, MAX_COMPLEXITY = 60, 15  # lines without the docstring
MAX_PARAMETERS = 8  # of a constructor
MAX_FILES, WALKS = 6, 4  # of a walk: "    1  room/file.py   Class.method, method" at a file's head
MIN_MODULE = 60  # lines of a module that one other of its package imports, and nobody else

SMALL_MODULES = {
    "msgnode.identity.presence": "a data structure with tests of its own",
    "msgnode.models.workers": "a module for the models of each room",
    "msgnode.runtime.python.announcements": "what follows the end of a stub, not how one is found",
    "msgnode.runtime.python.stub_module": "the forms of stubs, not the sandbox that runs them",
    "msgnode.servers.connection_rounds": "pure; the server that uses it is not",
    "registry.rest.parsers": "imported by REST framework, before its views",
}


def test_no_module_and_no_package_imports_itself_by_way_of_others() -> None:
    modules = architecture.modules()
    assert architecture.circles(modules) == []
    assert architecture.circles(architecture.packages(modules)) == []


@pytest.mark.filterwarnings("default")
def test_no_file_is_too_long_to_be_read_at_once() -> None:
    lines = {name: len(text.splitlines()) for name, text in _sources().items()}
    assert len(lines) > 300
    assert {name: number for name, number in lines.items() if number > MAX_LINES} == {}
    many = sorted(name for name, number in lines.items() if number > MANY_LINES)
    if many:
        warnings.warn(f"more than {MANY_LINES} lines: {', '.join(many)}", stacklevel=1)


def test_no_function_is_too_long() -> None:
    long = {
        f"{file} {name}" for file, name, function in _functions() if _lines(function) > MAX_FUNCTION
    }
    assert long == set()


def test_no_function_is_too_complex() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901", "--config",
         f"lint.mccabe.max-complexity={MAX_COMPLEXITY}", "--output-format", "json",
         *architecture.PACKAGES],
        cwd=architecture.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    complex_ = {
        f"{Path(each['filename']).relative_to(architecture.ROOT)} {each['message'].split('`')[1]}"
        for each in json.loads(told.stdout)
    }
    assert complex_ == set()


def test_no_constructor_has_too_many_parameters() -> None:
    wide = set()
    for file, name, function in _functions():
        taken = function.args
        number = len(taken.posonlyargs + taken.args + taken.kwonlyargs) - 1
        if function.name == "__init__" and number > MAX_PARAMETERS:
            wide.add(f"{file} {name.removesuffix('.__init__')}")
    assert wide == set()


def test_no_small_module_serves_one_other_but_with_a_reason_or_in_the_list() -> None:
    graph = architecture.modules()
    importers: dict[str, set[str]] = {}
    for name, imported in graph.items():
        for other in imported:
            importers.setdefault(other, set()).add(name)
    small = set()
    for file, text in _sources().items():
        name = file.removesuffix(".py").replace("/", ".")
        package = name.rpartition(".")[0]
        if len(text.splitlines()) < MIN_MODULE and len(importers.get(name, ())) == 1:
            (importer,) = importers[name]
            if package in (importer, importer.rpartition(".")[0]):
                small.add(name)
    listed = SMALL_MODULES.keys()
    assert small == listed, _says(listed - small) or "join it with the module that imports it"


def test_a_walk_leads_through_few_files_to_what_is_in_them() -> None:
    step = re.compile(r"^    \d  ([\w/]+\.py) +(\w[\w., ]*)$", re.MULTILINE)
    walks = {file: found for file, text in _sources().items() if (found := step.findall(text))}
    assert len(walks) == WALKS
    there = {(file, name) for file, name, _ in _functions()}
    for walk in walks.values():
        assert len({file for file, _ in walk}) <= MAX_FILES
        for place, listed in walk:
            file = place if place in _sources() else f"msgnode/{place}"
            names = listed.split(", ")
            within = names[0].rpartition(".")[0]
            for name in names:
                full = name if "." in name or not within else f"{within}.{name}"
                is_value = re.search(rf"^{name}\b.* = ", _sources()[file], re.MULTILINE)
                assert (file, full) in there or is_value, f"{file} {full}"


def test_the_page_shows_the_imports_there_are() -> None:
    page = architecture.PAGE.read_text()
    assert architecture.written(page) == page, "run `make drawing`"


@cache
def _sources() -> dict[str, str]:
    """The files of the product by name, without migrations and the tests of the Python runtime."""
    return {
        str(path.relative_to(architecture.ROOT)): path.read_text()
        for package in architecture.PACKAGES
        for path in (architecture.ROOT / package).rglob("*.py")
        if "migrations" not in path.parts and "tests" not in path.parts
    }


@cache
def _functions() -> list[tuple[str, str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each function: its file, its name with that of what it stands in, itself."""
    found = []
    for file, text in _sources().items():
        ahead: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
        while ahead:
            within, node = ahead.pop()
            for each in ast.iter_child_nodes(node):
                if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    ahead.append((within, each))
                    continue
                name = f"{within}{each.name}"
                ahead.append((f"{name}.", each))
                if not isinstance(each, ast.ClassDef):
                    found.append((file, name, each))
    return found


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def _says(mended: set[str]) -> str:
    return f"mended, take it out of the list: {sorted(mended)}" if mended else ""
