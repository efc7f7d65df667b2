"""Frames: whatever comes in, what goes out is JSON with exactly the node's marks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.bus.open_requests import DEFAULT_LIMITS, OpenRequests
from msgnode.core import addresses, message_types, messages, nesting
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import Forbidden
from msgnode.core.redaction import without_tokens

# Text as JSON can carry it: half a surrogate pair is no text.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
KEYS = TEXT | st.sampled_from(["auth", "assertedIdentity", "via", "value"])
BODIES = st.dictionaries(KEYS, VALUES, max_size=4)
IDS = st.integers() | st.booleans() | TEXT | st.floats(-1e9, 1e9)
TYPES = st.sampled_from(sorted(message_types.TYPES)).flatmap(
    lambda word: st.sampled_from([word, word.upper(), word.title()])
)
ADDRESSES = (
    st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"]),
        min_size=1,
        max_size=30,
    )
    .map(addresses.canonical)
    .filter(bool)
)

MARKS = ("auth", "assertedIdentity")


@st.composite
def frames(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """A message and one way to write it: any order of keys, blanks, escapes, unknown fields."""
    fields = {
        "id": draw(IDS),
        "type": draw(TYPES),
        "from": draw(ADDRESSES),
        "to": draw(ADDRESSES | st.lists(ADDRESSES, min_size=1, max_size=3)),
        "body": draw(BODIES),
    }
    more = draw(st.dictionaries(TEXT, VALUES, max_size=2))
    fields = {**{key: value for key, value in more.items() if key not in fields}, **fields}
    order = draw(st.permutations(list(fields)))
    text = json.dumps(
        {key: fields[key] for key in order},
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, None, 0, 1])),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", "\t:")])),
    )
    return fields, text.encode()


def marked(body: Any, auth: bool, asserted: bool = False) -> dict[str, Any]:
    mine = {"auth": auth, **({"assertedIdentity": True} if asserted else {})}
    kept = {key: value for key, value in (body or {}).items() if key not in MARKS}
    return {**kept, **mine}


@given(frames(), st.booleans(), st.booleans())
def test_a_forwarded_frame_is_the_message_with_the_nodes_marks_and_one_recipient(
    given_frame: tuple[dict[str, Any], bytes], auth: bool, asserted: bool
) -> None:
    fields, frame = given_frame
    message = messages.parse(frame)
    for to in message.recipients:
        single = message if len(message.recipients) == 1 else message.to_one(to)
        sent = json.loads(single.forwarded(to, auth, asserted))
        assert sent == {**fields, "to": to, "body": marked(fields["body"], auth, asserted)}
        messages.parse(single.forwarded(to, auth, asserted))


@given(frames())
def test_what_is_read_is_what_was_written(given_frame: tuple[dict[str, Any], bytes]) -> None:
    fields, frame = given_frame
    message = messages.parse(frame)
    assert json.loads(message.id) == fields["id"]
    assert message.type == fields["type"].lower()
    assert message.sender == fields["from"]
    to = fields["to"]
    assert message.recipients == ((to,) if isinstance(to, str) else tuple(dict.fromkeys(to)))
    assert message.fields() == json.loads(json.dumps(fields["body"]))


LONG = st.sampled_from(["a", "a" * 2048, "a" * 2049, "\x7f", "é", "\u2028", ""])
HOSTILE_ADDRESS = LONG | ADDRESSES


@given(
    st.sampled_from(
        [
            "1",
            "-1",
            '"x"',
            '""',
            "true",
            "null",
            "[1]",
            "{}",
            '"' + "i" * 254 + '"',
            "1" * 257,
            "1.5e3",
        ]
    ),
    st.sampled_from(
        ["create", "CREATE", "response", "", "own", "o" * 64, "o" * 65, "\x7f", "open"]
    ),
    HOSTILE_ADDRESS,
    HOSTILE_ADDRESS,
    st.sampled_from(
        ["{}", "{ }", "null", "[]", "1", '{"value":1}', '{ "auth":true}', '{"auth":true}']
    )
    | BODIES.map(lambda body: json.dumps(body, separators=(",", ":"))),
    st.permutations(range(5)),
)
def test_a_compact_frame_is_judged_and_passed_on_like_one_with_blanks(
    id_: str, type_: str, sender: str, to: str, body: str, order: list[int]
) -> None:
    texts = [json.dumps(each, ensure_ascii=False) for each in (type_, sender, to)]
    fields = [f'"id":{id_}', f'"type":{texts[0]}', f'"from":{texts[1]}', f'"to":{texts[2]}']
    fields.append(f'"body":{body}')
    compact = "{" + ",".join(fields[n] for n in order) + "}"
    assert outcome_of(compact) == outcome_of(compact.replace("{", "{ ", 1))


def outcome_of(frame: str) -> Any:
    """What is wrong with a frame, or what is read of it and passed on."""
    try:
        message = messages.parse(frame.encode())
    except InvalidFrame as fault:
        return fault.code, fault.description, fault.id, fault.sender, fault.to, fault.is_response
    read = (message.id, message.type, message.sender, message.recipients, message.body)
    said = {
        name: bytes(getattr(message.identity_fields, name))
        for name in message.identity_fields.__struct_fields__
    }
    copy = message.forwarded(message.recipients[0], True)
    return read, message.is_response, said, json.loads(copy)


@given(frames(), BODIES)
def test_a_reply_swaps_the_parties_and_keeps_the_id_to_the_byte(
    given_frame: tuple[dict[str, Any], bytes], body: dict[str, Any]
) -> None:
    message = messages.parse(given_frame[1])
    answer = messages.reply(message, body)
    assert b'{"id":' + message.id + b"," in answer
    read = json.loads(answer)
    assert (read["from"], read["to"]) == (message.recipients[0], message.sender)
    assert (read["type"], read["body"]) == ("response", body)


@given(frames(), BODIES)
def test_a_body_rewritten_by_a_policy_replaces_the_old_one(
    given_frame: tuple[dict[str, Any], bytes], body: dict[str, Any]
) -> None:
    fields, frame = given_frame
    to = messages.parse(frame).recipients[0]
    text = json.dumps(body).encode()
    rewritten = messages.parse(frame).with_body(text)
    assert rewritten.fields() == json.loads(text)
    expected = {**fields, "to": to, "body": marked(body, True)}
    assert json.loads(rewritten.forwarded(to, True)) == expected
    assert json.loads(messages.parse(frame).forwarded(to, True, body=text)) == expected


@given(frames(), st.data())
def test_the_same_key_twice_is_refused_wherever_it_stands(
    given_frame: tuple[dict[str, Any], bytes], data: st.DataObject
) -> None:
    fields, _ = given_frame
    pairs = [f"{json.dumps(key)}:{json.dumps(value)}" for key, value in fields.items()]
    key = data.draw(st.sampled_from(list(fields)))
    value = data.draw(st.sampled_from([fields[key], "x", 1, {}, None]))
    name = json.dumps(key)
    if data.draw(st.booleans()) and key:
        name = '"' + "".join(f"\\u{ord(c):04x}" for c in key if ord(c) < 0x10000) + '"'
        if json.loads(name) != key:
            name = json.dumps(key)
    pairs.insert(data.draw(st.integers(0, len(pairs))), f"{name}:{json.dumps(value)}")
    with pytest.raises(InvalidFrame):
        messages.parse(("{" + ",".join(pairs) + "}").encode())


@given(st.binary(max_size=80) | TEXT.map(str.encode) | VALUES.map(lambda v: json.dumps(v).encode()))
def test_nothing_but_a_refusal_comes_of_garbage(frame: bytes) -> None:
    with pytest.raises(InvalidFrame) as refused:
        messages.parse(frame)
    assert refused.value.description


@given(frames(), st.randoms(use_true_random=False))
def test_a_damaged_frame_is_refused_or_goes_on_as_json(
    given_frame: tuple[dict[str, Any], bytes], chance: random.Random
) -> None:
    frame = damaged(given_frame[1], chance)
    try:
        message = messages.parse(frame)
    except InvalidFrame as fault:
        answer = messages.response(fault.id, "x", fault.sender, messages.error_body(fault))
        assert json.loads(answer)["body"]["code"] == 400
        return
    for to in message.recipients:
        sent = json.loads(message.to_one(to).forwarded(to, False))
        assert sent["to"] == to
        assert sent["body"]["auth"] is False
        assert "assertedIdentity" not in sent["body"]
    json.loads(messages.reply(message, {"code": 200}))


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """The frame with a few bytes changed, dropped, doubled or cut off."""
    bytes_ = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(bytes_) + 1)
        match chance.randrange(4):
            case 0:
                bytes_[at : at + 1] = bytes([chance.choice(b'"{}[]:,\\ \x00\xff019ae-')])
            case 1:
                del bytes_[at : at + chance.randint(1, 5)]
            case 2:
                bytes_[at:at] = bytes_[at : at + chance.randint(1, 20)]
            case _:
                bytes_[at:at] = chance.choice([b'"auth":true,', b",", b"{}", b"null", b"\xf0\x9f"])
    return bytes(bytes_)


@pytest.mark.parametrize("kind", ["[", '{"a":'])
@pytest.mark.parametrize("space", ["", " " * 300])
def test_a_message_of_as_many_levels_as_allowed_is_read_by_whoever_is_called_deep(
    kind: str, space: str
) -> None:
    end = {"[": "]", '{"a":': "}"}[kind]
    for levels in (*range(50, 1200, 7), *range(120, 130), 5_000, 100_000):
        inner = kind * levels + "1" + end * levels
        frame = (
            f'{{"id":1,"type":"read","from":"a","to":"b",{space}"body":{{"v":{inner}}}}}'.encode()
        )
        if levels + 2 > nesting.MAX_DEPTH:
            with pytest.raises(InvalidFrame, match="deep"):
                messages.parse(frame)
            continue
        message = messages.parse(frame)
        assert inner.encode() in deeper(500, lambda m=message: m.forwarded("b", False))
        deeper(500, message.fields)
        deeper(300, lambda m=message: without_tokens(m.fields()))


@pytest.mark.parametrize("where", ["id", "more", "body"])
def test_levels_count_in_every_field(where: str) -> None:
    deep = "[" * nesting.MAX_DEPTH + "]" * nesting.MAX_DEPTH
    fields = {"id": "1", "type": '"read"', "from": '"a"', "to": '"b"', "body": "{}"}
    fields[where] = f'{{"v":{deep}}}' if where == "body" else deep
    frame = "{" + ",".join(f'"{key}":{value}' for key, value in fields.items()) + "}"
    with pytest.raises(InvalidFrame, match="deep") as refused:
        messages.parse(frame.encode())
    assert (refused.value.sender, refused.value.to) == ("a", "b")
    assert refused.value.id == (b"" if where == "id" else b"1")


def levels_of(value: Any) -> int:
    """How deep a value of JSON is nested, counted one by one."""
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(levels_of, inner), default=0)


BRACKETS = st.text('[]{}"\\a', max_size=6)
DEEP = st.recursive(
    BRACKETS | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(BRACKETS, inner, max_size=3),
    max_leaves=30,
)


@given(DEEP, st.integers(0, 140), st.booleans(), st.booleans())
def test_levels_are_counted_past_brackets_in_texts(
    value: Any, more: int, ascii_: bool, first: bool
) -> None:
    for number in range(more):
        value = [value, '["{'] if number % 2 else {'}"]': "[", "x": value, "[[": "\\"}
    text = json.dumps([value, DEEPLESS] if first else [DEEPLESS, value], ensure_ascii=ascii_)
    assert nesting.is_too_deep(text.encode()) == (levels_of(json.loads(text)) > nesting.MAX_DEPTH)


DEEPLESS = [[[]]] * 200
"""More brackets than there may be levels."""


def deeper(frames_: int, call: Callable[[], Any]) -> Any:
    """What `call` gives when it is called with so many more frames on the stack."""
    return call() if not frames_ else deeper(frames_ - 1, call)


@pytest.mark.parametrize("levels", [2_000, 200_000])
@pytest.mark.parametrize("place", ["id", "type", "from", "to", "body", "more"])
def test_depth_in_any_field_is_refused(place: str, levels: int) -> None:
    fields = {"id": "1", "type": '"read"', "from": '"a"', "to": '"b"', "body": "{}"}
    fields[place] = "[" * levels + "]" * levels
    frame = "{" + ",".join(f'"{key}":{value}' for key, value in fields.items()) + "}"
    with pytest.raises(InvalidFrame):
        messages.parse(frame.encode())


@pytest.mark.parametrize("to", ["Comm://D/%31", ["Comm://D/%31"], ["comm://d//1", "COMM://d/1"]])
def test_recipients_are_read_and_passed_on_in_canonical_form(to: Any) -> None:
    frame = {"id": 1, "type": "read", "from": "a", "to": to, "body": {}}
    message = messages.parse(json.dumps(frame, separators=(",", ":")).encode())
    assert message.recipients == ("comm://d/1",)
    passed_on = json.loads(message.forwarded("comm://d/1", False))
    assert passed_on["to"] == "comm://d/1"
    written = to if isinstance(to, str) else to[-1]
    assert json.loads(messages.reply(message, {}))["from"] == written


@pytest.mark.parametrize("field", ["from", "to"])
@pytest.mark.parametrize("address", ["hyperty://d/1 ", "hyperty://d/1?x", "hyperty://d/a/../1"])
def test_an_address_without_a_canonical_form_is_refused(field: str, address: str) -> None:
    frame = {"id": 1, "type": "read", "from": "a", "to": "b", "body": {}, field: address}
    with pytest.raises(InvalidFrame, match=f"`{field}`"):
        messages.parse(json.dumps(frame).encode())


def test_a_sender_that_is_not_in_canonical_form_is_told_which_it_is() -> None:
    frame = {"id": 1, "type": "read", "from": "Hyperty://D/%31", "to": "b", "body": {}}
    with pytest.raises(InvalidFrame, match="which is hyperty://d/1"):
        messages.parse(json.dumps(frame).encode())


def test_addresses_of_as_many_parts_as_one_message_may_name_are_read() -> None:
    to = [f"a://d/{n}" + "/b" * 31 for n in range(125)]
    frame = {"id": 1, "type": "read", "from": "a://d" + "/b" * 32, "to": to, "body": {}}
    assert messages.parse(json.dumps(frame).encode()).recipients == tuple(to)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": None}, "id"),
        ({"id": []}, "id"),
        ({"id": "x" * 300}, "id"),
        ({"type": "x" * 65}, "type"),
        ({"type": "tele\npathy"}, "type"),
        ({"type": 7}, "type"),
        ({"type": ""}, "type"),
        ({"from": ""}, "from"),
        ({"from": ["a"]}, "from"),
        ({"from": "a\nb"}, "from"),
        ({"from": "a" * 3000}, "from"),
        ({"to": ""}, "to"),
        ({"to": []}, "to"),
        ({"to": ["a", 7]}, "to"),
        ({"to": {"a": 1}}, "to"),
        ({"to": [f"a{n}" for n in range(1001)]}, "to"),
        ({"to": "a://d" + "/b" * 33}, "to"),
        ({"to": ["c", "a://d" + "/b" * 33]}, "to"),
        ({"from": "a://d" + "/b" * 33}, "from"),
        ({"to": ["a://d/b", *(f"a://d/{n}" + "/b" * 31 for n in range(125))]}, "4000 parts"),
        ({"body": []}, "body"),
        ({"body": "text"}, "body"),
        ({"body": 7}, "body"),
    ],
)
def test_a_refusal_names_the_field_and_keeps_what_can_be_answered(
    fields: dict[str, Any], words: str
) -> None:
    good = {"id": 1, "type": "read", "from": "a", "to": "b", "body": {}}
    with pytest.raises(InvalidFrame) as refused:
        messages.parse(json.dumps({**good, **fields}).encode())
    assert words in refused.value.description
    if "id" not in fields:
        assert refused.value.id == b"1"
    if "from" not in fields:
        assert refused.value.sender == "a"


@pytest.mark.parametrize(
    ("frame", "is_response"),
    [
        ('{"type":"response"}', True), ('{"type":"RESPONSE","from":7}', True),
        ('{"type":"read"}', False), ('{"type":7}', False), ("[]", False),
    ],
)  # fmt: skip
def test_a_refusal_knows_a_response(frame: str, is_response: bool) -> None:
    with pytest.raises(InvalidFrame) as refused:
        messages.parse(frame.encode())
    assert refused.value.is_response is is_response


def test_status_events_may_lack_an_id_and_session_frames_a_sender() -> None:
    messages.parse(b'{"type":"update","from":"a","to":"a/status"}')
    for word in (b"open", b"re-open", b"close"):
        messages.parse(b'{"id":1,"type":"' + word + b'","to":"mn:/session"}')
    with pytest.raises(InvalidFrame):
        messages.parse(b'{"type":"update","from":"a","to":"a/changes"}')
    with pytest.raises(InvalidFrame):
        messages.parse(b'{"id":1,"type":"read","to":"mn:/session"}')


@pytest.mark.parametrize(("one", "other"), [("1", '"1"'), ("7.5", '"7.5"'), ("true", '"true"')])
def test_an_id_is_the_same_as_number_and_as_text(one: str, other: str) -> None:
    keys = {
        messages.parse(f'{{"id":{id_},"type":"read","from":"a","to":"b"}}'.encode()).id_key
        for id_ in (one, other)
    }
    assert len(keys) == 1


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,5})?", fullmatch=True)
)
def test_an_id_that_is_any_number_can_be_compared(number: str) -> None:
    """Whoever fails at one ends what it serves: the session of a peer, for example."""
    frame = f'{{"id":{number},"type":"read","from":"a","to":"b"}}'.encode()
    key = messages.parse(frame).id_key
    again = OpenRequests(DEFAULT_LIMITS, 0.0)
    again.add("a", number.encode(), "asked", 0.0)
    assert again.was_asked("a", key, "asked", 0.0)


@pytest.mark.parametrize("number", ["1e999", "-1E400", "1e309"])
def test_an_id_beyond_all_numbers_is_known_by_how_it_is_written(number: str) -> None:
    frame = f'{{"id":{number},"type":"read","from":"a","to":"b"}}'.encode()
    assert messages.parse(frame).id_key == number


def test_a_response_without_an_id_has_none() -> None:
    assert "id" not in json.loads(messages.response(b"", "a", "b", {}))


def test_an_error_has_its_text_under_both_keys() -> None:
    body = messages.error_body(Forbidden("no"))
    assert body == {"code": 403, "desc": "no", "description": "no"}
    assert messages.error_body(Forbidden())["desc"] == "Forbidden"


def test_an_event_of_the_node_is_a_message() -> None:
    event = messages.parse(messages.event("domain://d", "runtime://d/1/status", "gap", 3, why="x"))
    assert (event.type, event.fields()) == ("update", {"value": "gap", "why": "x"})
