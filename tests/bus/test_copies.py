"""A session's token is in no copy of a frame, however it is written; the rest of the copy stays."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.bus.delivery import without_token

TEXT = st.text(max_size=20)
TOKEN = "0f8fad5b-d9cb-469f-a165-70867728950e"


def escaped(char: str) -> str:
    return f"\\u{ord(char):04x}"


SPELLINGS = (
    st.tuples(
        *(
            st.sampled_from([char, char.upper(), escaped(char), escaped(char.upper())])
            for char in TOKEN
        )
    )
    .map("".join)
    .filter(lambda text: "\\" in text)
)
BEFORE = ["", "/", "\\/", escaped("/"), "%2F", "\\n", "\\\\", "\\\\/", "\\\\\\/", "\\\\u003"]


@given(TEXT, SPELLINGS | st.just(TOKEN), st.sampled_from(BEFORE))
def test_a_token_is_cut_out_however_it_is_written(text: str, token: str, before: str) -> None:
    around = json.dumps(text)
    frame = f'{{"a":{around},"via":"runtime://d/1{before}{token}","b":{around}}}'
    copy = json.loads(without_token(frame.encode(), TOKEN.encode()))
    assert TOKEN not in copy["via"].lower()
    assert copy["via"].startswith("runtime://d/1")
    assert (copy["a"], copy["b"]) == (text, text)


@given(st.lists(TEXT), st.booleans())
def test_a_frame_without_the_token_is_handed_on_as_it_is(texts: list[str], ascii_: bool) -> None:
    other = str(uuid.uuid4())
    frame = json.dumps([*texts, other, other.upper()], ensure_ascii=ascii_).encode()
    assert without_token(frame, TOKEN.encode()) is frame


@pytest.mark.parametrize("token", ["abcdef", "ABC", "\xdf-1", "a.b"])
def test_a_token_of_another_form_is_cut_out_too(token: str) -> None:
    frame = json.dumps([f"x/{token}", token.lower()], ensure_ascii=False).encode()
    assert without_token(frame, token.encode()) == b'["x", ""]'
