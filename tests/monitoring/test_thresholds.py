"""An alarm is raised after its time, and over as late; a gap in knowing is neither."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgnode.monitoring.thresholds import FIGURES, SETTLED, Rule, Threshold


def rule(**changes: object) -> Rule:
    whole = {"id": 1, "name": "flood", "figure": "messages", "is_below": False, "limit": 100.0,
             "seconds": 10.0, "note": "Look at who sends most."}  # fmt: skip
    return Rule(**{**whole, **changes})  # type: ignore[arg-type]


def test_it_is_raised_after_its_seconds_and_over_after_as_many() -> None:
    threshold = Threshold(rule(), stands=False)
    assert [threshold.see(101, now) for now in (0, 5, 9.9)] == [None, None, None]
    assert threshold.see(101, 10) is True
    assert threshold.see(500, 11) is None
    assert [threshold.see(99, now) for now in (12, 21.9)] == [None, None]
    assert threshold.see(99, 22) is False


def test_one_second_below_begins_the_time_again() -> None:
    threshold = Threshold(rule(), stands=False)
    threshold.see(101, 0)
    threshold.see(100, 5)
    assert threshold.see(101, 11) is None
    assert threshold.see(101, 21) is True


def test_what_is_not_known_changes_nothing() -> None:
    threshold = Threshold(rule(), stands=True)
    threshold.see(0, 0)
    assert threshold.see(None, 9) is None
    assert threshold.see(0, 10) is None
    assert threshold.see(0, 20) is False


def test_below_is_the_other_side() -> None:
    threshold = Threshold(rule(is_below=True, figure="workers", limit=2, seconds=0), stands=False)
    assert threshold.see(2, 0) is None
    assert threshold.see(1, 1) is True
    assert threshold.text(1) == (
        "workers that are heard of: 1, below 2 for 0 s. Look at who sends most."
    )


def test_without_seconds_it_is_still_over_only_once_settled() -> None:
    threshold = Threshold(rule(seconds=0.0), stands=False)
    assert threshold.see(101, 0) is True
    assert threshold.see(1, 1) is None
    assert threshold.see(1, 1 + SETTLED) is False


def test_every_figure_has_words() -> None:
    for figure in FIGURES:
        assert FIGURES[figure].title in Threshold(rule(figure=figure), False).text(1234.5)


@given(st.lists(st.one_of(st.none(), st.floats(0, 200)), max_size=60), st.floats(0, 8))
def test_raised_and_over_take_turns(values: list[float | None], seconds: float) -> None:
    threshold = Threshold(rule(seconds=seconds), stands=False)
    told = [threshold.see(value, now) for now, value in enumerate(values)]
    changes = [change for change in told if change is not None]
    assert changes == [n % 2 == 0 for n in range(len(changes))]
