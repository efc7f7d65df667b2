"""The lines between node and sandbox: what is no operation is refused, whatever it is."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.sandbox import pipe
from msgnode.sandbox.pipe import InvalidLine, LineReader

GOOD = [
    ({"op": "loaded", "kind": "umd"}, pipe.Loaded),
    ({"op": "load-failed", "error": "why"}, pipe.LoadFailed),
    ({"op": "message", "message": {"type": "x"}}, pipe.Posted),
    ({"op": "ws-open", "ws": 1, "url": "wss://b.example/ws"}, pipe.SocketWanted),
    ({"op": "ws-send", "ws": 1, "data": "é"}, pipe.SocketSend),
    ({"op": "ws-close", "ws": 1}, pipe.SocketClose),
    ({"op": "log", "text": "x"}, pipe.Logged),
    ({"op": "pong", "n": 1}, pipe.Pong),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(("operation", "kind"), GOOD)
def test_every_operation_of_a_sandbox_is_read(operation: dict[str, object], kind: type) -> None:
    assert isinstance(pipe.read(json.dumps(operation, ensure_ascii=False).encode()), kind)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"garbage",
        b"null",
        b"[]",
        b'{"op":"eval","text":"1"}',
        b'{"op":"pong"}',
        b'{"op":"pong","n":0}',
        b'{"op":"pong","n":"1"}',
        b'{"op":"pong","n":1,"more":1}',
        b'{"op":"message","message":"text"}',
        b'{"op":"message","message":[1]}',
        b'{"op":"ws-open","ws":1,"url":"' + b"x" * 3_000 + b'"}',
        b'{"op":"ws-open","ws":1,"url":"u","protocols":' + json.dumps(["p"] * 9).encode() + b"}",
        b'{"op":"ws-close","ws":1,"code":70000}',
        b'{"op":"log","text":"\xff"}',
        b'{"op":"log","text":"' + b"x" * 5_000 + b'"}',
        b'{"op":"message","message":' + b'{"a":' * 100_000,
    ],
)
def test_what_is_no_operation_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidLine):
        pipe.read(line)


@given(st.binary(max_size=300))
def test_no_bytes_do_anything_but_be_read_or_refused(line: bytes) -> None:
    try:
        pipe.read(line)
    except InvalidLine as fault:
        assert str(fault)


@given(st.sampled_from([operation for operation, _ in GOOD]), st.text(min_size=1), json_values)
def test_a_field_that_an_operation_does_not_have_is_refused(
    operation: dict[str, object], name: str, value: object
) -> None:
    if name not in {"op", *operation, "protocols", "code", "reason"}:
        with pytest.raises(InvalidLine):
            pipe.read(json.dumps({**operation, name: value}).encode())


@given(st.lists(st.binary(max_size=40).map(lambda each: each.replace(b"\n", b""))), st.data())
def test_lines_come_out_as_they_went_in_however_they_are_cut(
    lines: list[bytes], data: st.DataObject
) -> None:
    text = b"".join(line + b"\n" for line in lines)
    reader = LineReader(100)
    found: list[bytes] = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        found += reader.feed(text[:size])
        text = text[size:]
    assert found == [line for line in lines if line]


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=30))
def test_a_reader_never_keeps_more_than_a_line_may_have(parts: list[bytes]) -> None:
    reader = LineReader(64)
    for part in parts:
        with suppress(InvalidLine):
            assert all(len(line) <= 64 for line in reader.feed(part))
        assert len(reader._rest) <= 64


@given(st.text(), st.dictionaries(st.text(), json_values.filter(lambda each: each == each)))
def test_what_the_node_says_is_one_line_of_json(source: str, configuration: dict) -> None:
    try:
        line = pipe.load(source, "runtime://b/protostub/1", configuration)
    except (UnicodeEncodeError, OverflowError):
        return
    assert line.count(b"\n") == 1
    assert json.loads(line)["source"] == source


def test_case_78_what_is_shown_of_what_a_stub_has_said_holds_no_token() -> None:
    token = "2f4e2b06-3c0c-4b57-9d7a-0f4f6e0f6a11"
    url = f"runtime://a.example/mn-1/{token}"
    for text in (url, f"refused: {url} is not of the domain", f"gave up: {url}", "x" * 290 + url):
        assert token[:8] not in pipe.shown(text)
        assert len(pipe.shown(text)) <= pipe.SHOWN


def test_a_message_is_one_line_whatever_breaks_it_has_between_its_parts() -> None:
    message = b'{"id":1,\n"body":{"value":[\n{"op":"load","source":"a\\nb"}\n]}}'
    line = pipe.post(message)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert json.loads(line)["message"] == json.loads(message)
