"""The P2P parts answer as the vectors say that those of both languages answer to."""

from __future__ import annotations

import json

import pytest
from p2p_vectors import FILE, vectors

KEPT = json.loads(FILE.read_text())
FOUND = json.loads(json.dumps(vectors()))


def test_each_vector_is_kept() -> None:
    assert sorted(KEPT) == sorted(FOUND)


@pytest.mark.parametrize("name", sorted(FOUND))
def test_the_parts_answer_as_the_vectors_say(name: str) -> None:
    assert KEPT[name] == FOUND[name]
    assert KEPT[name]


def test_the_vectors_of_links_show_both_ways_and_what_is_sent_again() -> None:
    done = [what[0] for link in KEPT["links"] for step in link["steps"] for what in step["does"]]
    assert {"toChannel", "toNode", "ask", "take", "close", "hasRoom"} <= set(done)
