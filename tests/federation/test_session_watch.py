"""Whether the host sees that a peer has a new session of this node."""

from __future__ import annotations

import json

import pytest

from msgnode.federation.states import LOOKS, SESSION, SessionWatch


def answer(code: object = 200, **more: object) -> str:
    body = {"code": code, **more}
    return json.dumps({"id": 1, "type": "response", "from": SESSION, "to": "x:1", "body": body})


def asked(type_: str) -> str:
    return json.dumps({"id": 1, "type": type_, "from": "runtime://a.example/1", "to": SESSION})


@pytest.fixture
def watch() -> SessionWatch:
    """One whose stub has opened a session before, and has lost its socket."""
    one = SessionWatch()
    one.opened()
    one.sent(asked("open"))
    one.received(answer(runtimeToken="first"))
    assert one.is_new
    one.opened()
    return one


@pytest.mark.parametrize("more", [{}, {"runtimeToken": "first"}])
def test_case_50_a_session_that_goes_on_is_not_new(watch: SessionWatch, more: dict) -> None:
    watch.sent(asked("re-open"))
    watch.received('{"type":"update","from":"x:1","to":"y:1","body":{}}')
    watch.received(answer(**more))
    assert not watch.is_new


def test_case_49_what_cannot_be_told_is_a_new_session(watch: SessionWatch) -> None:
    assert watch.is_new, "nothing was said yet"
    watch.received(answer())
    assert watch.is_new, "nobody asked to go on"
    for told in (
        answer(runtimeToken="second"),
        answer(404),
        answer("200"),
        "{",
        "null",
        f'"{SESSION}"',
    ):
        watch.opened()
        watch.sent(asked("re-open"))
        watch.received(told)
        assert watch.is_new, told


def test_a_session_that_is_refused_and_opened_anew_is_new(watch: SessionWatch) -> None:
    watch.sent(asked("re-open"))
    watch.received(answer(404))
    watch.sent(asked("open"))
    watch.received(answer(runtimeToken="second"))
    assert watch.is_new


def test_only_the_first_frames_of_a_socket_are_looked_at(watch: SessionWatch) -> None:
    watch.sent(asked("re-open"))
    for _ in range(LOOKS):
        watch.received("{}")
    watch.received(answer())
    assert watch.is_new
