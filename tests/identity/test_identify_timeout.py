"""How long a session may go without saying who it is."""

from __future__ import annotations

from msgnode.identity.identify_timeout import IdentifyDeadlines


def test_each_has_its_time_from_when_it_came_first() -> None:
    now = 0.0
    waiting = IdentifyDeadlines(10, lambda: now)
    waiting.enter("a")
    now = 5.0
    waiting.enter("b")
    waiting.enter("a")
    now = 9.9
    assert waiting.over() == []
    now = 10.0
    assert waiting.over() == ["a"]
    waiting.leave("b")
    waiting.leave("b")
    now = 100.0
    assert waiting.over() == []
    assert len(waiting) == 0


def test_without_a_limit_nobody_is_hurried() -> None:
    waiting = IdentifyDeadlines(0, lambda: 1.0)
    waiting.enter("a")
    assert len(waiting) == 0
