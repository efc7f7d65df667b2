"""Descriptions of stubs as they are found in the field, and such that are none."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.federation import descriptor
from msgnode.federation.descriptor import BadDescriptor
from msgnode.federation.sockets import socket_fault
from tests.node import ROOT

SOURCE = "export default class {}"
CASES = json.loads(
    (ROOT / "msgnode" / "runtime" / "js" / "tests" / "field-stubs.json").read_text(encoding="utf-8")
)
"""Of all readers of descriptors."""


@pytest.mark.parametrize("case", CASES["descriptors"], ids=lambda case: str(case["name"]))
def test_a_descriptor_of_the_field_is_read(case: dict[str, Any]) -> None:
    script = b"SCRIPT" if case["isBeside"] else None
    found = descriptor.read(json.dumps(case["descriptor"]).encode(), script)
    assert (found.source, found.url) == ("SCRIPT", case["endpoint"])


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: str(case["name"]))
def test_one_that_is_wrong_is_refused(case: dict[str, Any]) -> None:
    raw = json.dumps(case["descriptor"]).encode()
    if case["field"] == "configuration.messagingnode":  # the sockets refuse it
        assert socket_fault(descriptor.read(raw).url, frozenset({"f"}), ()) != ""
        return
    with pytest.raises(BadDescriptor):
        descriptor.read(raw)


@pytest.mark.parametrize(
    ("fields", "source", "kind"),
    [
        ({"objectName": "VertxProtoStub"}, SOURCE, "vertx"),
        ({"objectName": "default"}, "class VertxProtoStub {}", "vertx"),
        ({"objectName": "NodejsProtoStub"}, SOURCE, "nodejs"),
        ({"objectName": "MatrixProtoStub"}, "a.VertxProtoStub", "nomatrix"),
        ({"objectName": "MessagingNodeProtoStub"}, SOURCE, "ours"),
        ({"objectName": 7}, "export default class Stub {}", "unknown"),
    ],
)
def test_the_kind_of_node_is_guessed_from_names(
    fields: dict[str, Any], source: str, kind: str
) -> None:
    assert descriptor.read(described(**fields), source.encode()).kind == kind


def described(**fields: Any) -> bytes:
    known = {
        "language": "JAVASCRIPT_ECMA6",
        "configuration": {"url": "wss://b.example/ws"},
        "sourcePackage": {"encoding": "utf-8", "sourceCode": SOURCE},
    }
    return json.dumps({**known, **fields}).encode()


def test_a_stub_is_known_by_the_digest_of_its_source() -> None:
    found = descriptor.read(described(version="1.2"))
    assert (found.source, found.url, found.version) == (SOURCE, "wss://b.example/ws", "1.2")
    assert found.digest == hashlib.sha256(SOURCE.encode()).hexdigest()


@pytest.mark.parametrize("text", ['{"messagingnode":"wss://b.example"}', "", "{}"])
def test_case_10_a_configuration_may_be_its_text(text: str) -> None:
    assert descriptor.read(described(configuration=text)).url in ("wss://b.example", "")


def test_case_11_a_source_in_base64_may_be_no_utf_8() -> None:
    content = b"// \xff\n" + SOURCE.encode()
    package = {"encoding": "base64", "sourceCode": base64.b64encode(content).decode()}
    found = descriptor.read(described(sourcePackage=package))
    assert found.source == "// �\n" + SOURCE
    assert found.digest == hashlib.sha256(content).hexdigest()


def test_case_2_a_script_may_come_by_itself() -> None:
    assert descriptor.read(described(sourcePackage={}), b"other").source == "other"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"a":' * 100_000, "no JSON"),
        (described(language="PYTHON"), "python"),
        (described(interworking=True), "interworking"),
        (described(sourcePackage=None), "no source"),
        (described(sourcePackage={"sourceCode": 7}), "no source"),
        (described(sourcePackage={"encoding": "base64", "sourceCode": "é"}), "base64"),
        (described(sourcePackage={"sourceCode": "x" * (2 * 1024 * 1024 + 1)}), "too large"),
        (described(configuration="{"), "configuration"),
        (described(configuration=["x"]), "configuration"),
        (described(configuration={"x": "y" * 70_000}), "configuration"),
    ],
)
def test_case_5_what_describes_no_stub_says_why(text: bytes, told: str) -> None:
    with pytest.raises(BadDescriptor, match=told):
        descriptor.read(text)


_FIELDS = (
    "language", "configuration", "sourcePackage", "sourceCode", "encoding", "version",
)  # fmt: skip


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=len(_FIELDS))
            | st.lists(inner, max_size=3)
        ),
        max_leaves=20,
    )
)
def test_any_json_is_read_or_refused(value: Any) -> None:
    try:
        found = descriptor.read(json.dumps(value).encode())
    except BadDescriptor as fault:
        assert str(fault)
    else:
        assert len(found.digest) == 64


@pytest.mark.parametrize(
    "fields",
    [
        {"version": "1\0"},
        {"version": "\ud800"},
        {"sourcePackage": {"sourceCode": "let a = '\0';"}},
        {"configuration": {"url": "wss://b.example/ws", "more": ["\0"]}},
        {"configuration": {"\udfff": 1}},
        {"configuration": json.dumps({"a": "\\\0"})},
        {"language": "\0"},
    ],
)
def test_what_no_database_takes_is_refused_in_words_that_it_takes(fields: dict[str, Any]) -> None:
    with pytest.raises(BadDescriptor) as refused:
        descriptor.read(described(**fields))
    assert str(refused.value).isprintable()


def test_what_only_looks_like_it_is_taken() -> None:
    found = descriptor.read(described(configuration={"a": "\\u0000", "b": "\U0001f600"}))
    assert found.configuration == {"a": "\\u0000", "b": "\U0001f600"}
