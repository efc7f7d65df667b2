"""Every error code, close code and alarm has a page, and answers lead to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from msgnode.core import errors
from msgnode.core.explanations import ALARMS, CLOSE_CODES, ERRORS, Explanation
from msgnode.sessions.rules import CloseCode
from msgnode.web.explained import KINDS, pages
from tests.node import ROOT
from tests.ops.test_metrics_page import _raised, _sources

ANSWER = re.compile(r"\b[45]\d\d\b")


def raised(of: type[errors.NodeError]) -> Iterator[type[errors.NodeError]]:
    """An error of the tree and all below it."""
    yield of
    for each in of.__subclasses__():
        yield from raised(each)


def answered() -> set[int]:
    """The statuses that modules of the node name: `status=404`, `code = 421`."""
    found = set()
    for path in _sources():
        text = path.read_text(encoding="utf-8")
        if not ANSWER.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            value: Any = None
            if isinstance(node, ast.keyword) and node.arg in ("status", "code"):
                value = node.value
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {getattr(each, "id", getattr(each, "attr", "")) for each in targets}
                value = node.value if names & {"code", "status_code", "status"} else None
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                found.add(value.value)
    return {code for code in found if 400 <= code < 600}


def test_every_error_of_the_node_is_explained() -> None:
    tree = {error.code for error in raised(errors.NodeError)}
    assert len(tree) > 8
    assert tree | answered() <= set(ERRORS)


def test_every_close_code_is_explained_and_no_other() -> None:
    ours = {code for name, code in vars(CloseCode).items() if name.isupper()}
    assert ours | {1002, 1007} == set(CLOSE_CODES)  # the two are the servers'


def test_every_alarm_is_explained_and_no_other() -> None:
    assert {kind for path in _sources() for kind in _raised(path)} == set(ALARMS)


def test_the_protocol_page_names_the_close_codes_that_are_explained() -> None:
    said = (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8")
    section = said.partition("## Close codes")[2]
    assert {int(code) for code in re.findall(r"^\| (\d{4}) \|", section, re.M)} == set(CLOSE_CODES)


@pytest.mark.parametrize("kind", KINDS)
def test_each_has_a_page_that_says_what_to_do(client: Client, kind: str) -> None:
    overview = client.get(reverse("problems")).content.decode()
    for name, (mark, text) in pages(kind).items():
        link = reverse("problem", args=[kind, name])
        page = client.get(link).content.decode()
        assert all(part in unescaped(page) for part in (mark, *text))
        assert f'href="{link}"' in overview


def unescaped(page: str) -> str:
    return page.replace("&#x27;", "'").replace("&quot;", '"').replace("&lt;", "<")


def test_each_text_is_whole_sentences() -> None:
    texts: list[Explanation] = [
        *(error.explanation for error in ERRORS.values()), *CLOSE_CODES.values(), *ALARMS.values()
    ]  # fmt: skip
    for text in texts:
        assert text.meaning.endswith(".") and text.remedy.endswith("."), text
        assert not text.title.endswith("."), text
        assert "  " not in "".join(text), text


def test_an_error_may_be_asked_for_by_its_code(client: Client) -> None:
    assert "may not do this" in client.get("/problems/errors/403").content.decode()
    for path in ("errors/999", "errors/teapot", "close-codes/4400", "nothing/404"):
        assert client.get(f"/problems/{path}").status_code == 404


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/nothing-here", "not-found"),
        ("/.well-known/protocolstub/nothing-here", "not-found"),
    ],
)
def test_the_type_of_an_answer_leads_to_its_page(client: Client, path: str, name: str) -> None:
    answer = client.get(path).json()
    assert answer["type"] == f"/problems/errors/{name}"
    assert client.get(answer["type"]).status_code == 200
