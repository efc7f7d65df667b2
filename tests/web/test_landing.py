"""What `/` offers is what the node does."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from docs.hooks import what_it_is_for
from tests.node import ROOT


def _words(text: str) -> str:
    """The words of a page or of Markdown, without marks and tags."""
    plain = html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("’", "'")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    return " ".join(re.sub(r"[^\w']+", " ", plain).split())


def _page(part: str) -> str:
    page = Client().get("/").content.decode()
    return page.split(f"<section {part}", 1)[1].split("</section>", 1)[0]


def test_the_first_screen_says_what_the_readme_says() -> None:
    section = what_it_is_for()
    told = _words(_page('class="hero"'))
    said, *items = re.split(r"\n- ", section.rpartition("\n\n!")[0])
    for sentence in re.split(r"(?<=[.;:]) ", said.partition("A node gives")[0]):
        assert _words(sentence) in told
    assert len(items) == 5
    for item in items:
        assert _words(item) in told
    assert re.findall(r"!\[(.*?)\]", section)[0] in _page('class="hero"').replace("’", "'")


def test_it_says_who_should_take_something_else_as_the_readme_does() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| \[(\w+)\].* \| (.+) \|$", readme, re.MULTILINE)
    assert [name for _, name, _ in rows] == ["NATS", "Centrifugo", "Matrix", "EMQX"]
    told = _words(_page('id="else"'))
    for need, name, reason in rows:
        why = reason.replace(" ([measured](docs/performance.md))", "")
        assert f"{name} for {_words(need)} {_words(why)}" in told


def test_its_picture_is_small_and_has_colours_for_the_dark() -> None:
    place = re.findall(r'src="/static/(\S+\.svg)"', _page('class="hero"'))
    assert len(place) == 1
    picture = finders.find(re.sub(r"\.[0-9a-f]{12}(?=\.svg)", "", place[0]))
    text = Path(picture).read_text(encoding="utf-8")
    assert len(text) < 5_000
    assert "prefers-color-scheme: dark" in text
    assert set(re.findall(r"https?://\S+?(?=[\"'\s])", text)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("is_on", [True, False])
def test_a_name_to_invite_is_asked_for_only_where_the_node_sends_invitations(
    settings: Any, is_on: bool
) -> None:
    settings.INVITATIONS = {**settings.INVITATIONS, "ON": is_on}
    page = Client().get("/").content.decode()
    assert ("or a name such as" in page) is is_on
    assert ("<code>INVITATIONS</code> is off" in page) is not is_on
