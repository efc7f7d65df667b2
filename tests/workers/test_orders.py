"""Orders about sessions that are not here: kept for a time, in a bounded number, done once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from msgnode.core.faults import FAULTS
from msgnode.workers import orders as module
from msgnode.workers.orders import Order, Orders
from tests.fakes import FakeSession


def session(id_: str) -> Any:
    found: Any = FakeSession("runtime://d/1")
    found.id, found.has_ended, found.orders = id_, False, ()
    return found


def noting(done: list[Any], what: Any = None) -> Callable[[Any], None]:
    return lambda _: done.append(what)


def test_orders_are_carried_out_once_in_order_and_none_after_the_end() -> None:
    done: list[int] = []
    orders, one = Orders(), session("one")

    def end(_: Any) -> None:
        one.has_ended = True

    for number, do in enumerate((noting(done, 1), noting(done, 2), end, noting(done, 3)), 1):
        orders.keep("one", Order(number, do))
    orders.carry_out(session("other"))
    assert len(orders) == 4
    orders.carry_out(one)
    orders.carry_out(one)
    assert done == [1, 2]
    assert len(orders) == 0


def test_an_order_that_a_session_has_met_already_is_not_carried_out_again() -> None:
    done: list[int] = []
    orders, one = Orders(), session("one")
    met, new, unnumbered = (Order(number, noting(done, number)) for number in (7, 8, 0))
    met.carry_out(one)
    for order in (met, new, unnumbered, unnumbered):
        orders.keep("one", order)
    orders.carry_out(one)
    assert done == [7, 8, 0, 0]


def test_what_a_session_has_met_is_bounded_and_the_newest_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_NOTED", 3)
    one, done = session("one"), []
    for number in (*range(1, 6), 5, 3):
        Order(number, noting(done, number)).carry_out(one)
    assert one.orders == (3, 4, 5)
    assert done == [1, 2, 3, 4, 5]


def test_what_the_rows_of_a_session_show_is_not_carried_out_on_it() -> None:
    now, done = 0.0, []
    orders = Orders(lambda: now)
    for moment in (1.0, 2.0):
        now = moment
        for number, is_in_rows in enumerate((True, False), 1):
            orders.keep("one", Order(number, noting(done, (now, is_in_rows)), is_in_rows))
    orders.carry_out(session("one"), rows_read_at=2.0)
    assert done == [(1.0, False), (2.0, True)]


def test_an_order_that_fails_is_counted_and_holds_up_no_other() -> None:
    done: list[int] = []
    orders, before = Orders(), FAULTS.counts["session"]

    def fail(_: Any) -> None:
        raise ValueError("an order that cannot be carried out")

    for number, do in enumerate((fail, noting(done, 2)), 1):
        orders.keep("one", Order(number, do))
    orders.carry_out(session("one"))
    assert done == [2]
    assert FAULTS.counts["session"] == before + 1


def test_they_are_kept_for_minutes_and_in_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now, done = 0.0, []
    orders = Orders(lambda: now)
    orders.keep("old", Order(1, noting(done)))
    now = module._KEPT + 1
    orders.carry_out(session("old"))
    assert not done
    monkeypatch.setattr(module, "_MOST", 3)
    for number in range(4):
        orders.keep(str(number), Order(2 + number, noting(done)))
    assert len(orders) == 3
    orders.carry_out(session("0"))
    assert not done
    orders.carry_out(session("3"))
    assert len(done) == 1
