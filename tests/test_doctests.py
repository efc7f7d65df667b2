"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from tests.node import ROOT

PACKAGES = ("msgnode", "policies", "registry", "spark")


def _with_examples() -> list[Path]:
    files = (path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")))
    return [path.relative_to(ROOT) for path in files if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", _with_examples(), ids=str)
def test_the_examples_of_docstrings_are_true(path: Path) -> None:
    module = import_module(".".join(path.with_suffix("").parts))
    failed, tried = doctest.testmod(module)
    assert tried
    assert not failed
