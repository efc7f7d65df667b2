"""A descriptor that is wrong in any field is refused with the field's name."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import ECHO, FakeCatalogue, World, descriptor

from msgnode.runtime.python.descriptor import (
    DescriptorError,
    check_descriptor,
)
from msgnode.runtime.python.settings import Settings

BASE = "https://f.example/.well-known/protocolstub/default"
SETTINGS = Settings("d.example", hosts={"f.example": ("edge.cdn.example",)})


def package(**changed: Any) -> dict[str, Any]:
    return {**descriptor()["sourcePackage"], **changed}


def check(raw: Any, settings: Settings = SETTINGS) -> Any:
    return check_descriptor(raw, "f.example", settings, base=BASE)


CASES = json.loads(
    (Path(__file__).parents[2] / "js" / "tests" / "field-stubs.json").read_text(encoding="utf-8")
)
"""Of all readers of descriptors; the stubs are in JavaScript."""


def in_python(raw: dict[str, Any]) -> dict[str, Any]:
    """The same, of a stub in Python."""
    is_js = str(raw["language"]).lower().startswith("javascript")
    return {**raw, "language": "PYTHON" if is_js else raw["language"], "constraints": {}}


@pytest.mark.parametrize("case", CASES["descriptors"], ids=lambda case: str(case["name"]))
def test_a_descriptor_of_the_field_is_read(case: dict[str, Any]) -> None:
    base = "https://f/.well-known/protocolstub/default" + (".ps.json" if case["isBeside"] else "")
    found = check_descriptor(in_python(case["descriptor"]), "f", Settings("d"), base=base)
    beside = (f"{base.removesuffix('json')}py", "")
    assert (found.source_url, found.source) == (beside if case["isBeside"] else ("", "SCRIPT"))
    parts = urlsplit(case["endpoint"])
    assert found.endpoint == (parts.hostname, parts.port or 443)


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: str(case["name"]))
def test_one_that_is_wrong_is_refused_by_its_field(case: dict[str, Any]) -> None:
    with pytest.raises(DescriptorError) as refused:
        check_descriptor(in_python(case["descriptor"]), "f", Settings("d"), base="https://f/x")
    assert refused.value.field == case["field"]


BAD: list[tuple[str, Any, int]] = [
    ("type", {"type": "HYPERTY"}, 502),
    ("type", {"type": 5}, 502),
    ("language", {"language": "JAVASCRIPT_ECMA6"}, 501),
    ("language", {"language": None}, 502),
    ("constraints.windowSandbox", {"constraints": {"windowSandbox": True}}, 501),
    ("constraints.browser", {"constraints": {"browser": True}}, 501),
    ("constraints.mic", {"constraints": {"python": True, "mic": True}}, 501),
    ("constraints.python", {"constraints": {"python": "yes"}}, 502),
    ("description", {"description": 1}, 502),
    ("messageSchema", {"messageSchema": []}, 502),
    ("messageSchemas", {"messageSchemas": ""}, 502),
    ("hypertyType", {"hypertyType": {}}, 502),
    ("dataObjects", {"dataObjects": "x"}, 502),
    ("interworking", {"interworking": "no"}, 502),
    ("idpProxy", {"idpProxy": 0}, 502),
    ("accessControlPolicy", {"accessControlPolicy": 1}, 502),
    ("mutualAuthentication", {"mutualAuthentication": 1}, 502),
    ("signature", {"signature": {}}, 502),
    ("sourcePackageURL", {"sourcePackageURL": 1}, 502),
    ("constraints", {"constraints": ["python"]}, 502),
    ("version", {"version": {}}, 502),
    ("cguid", {"cguid": 1}, 502),
    ("objectName", {"objectName": {}}, 502),
    ("sourcePackage", {"sourcePackage": "x"}, 502),
    (
        "sourcePackage.sourceCodeClassname",
        {"sourcePackage": package(sourceCodeClassname="a b")},
        502,
    ),
    ("sourcePackage.sourceCode", {"sourcePackage": package(sourceCode="")}, 502),
    ("sourcePackage.sourceCode", {"sourcePackage": package(sourceCode=[])}, 502),
    (
        "sourcePackage.sourceCode",
        {"sourcePackage": package(encoding="base64", sourceCode="%")},
        502,
    ),
    ("sourcePackage.sourceCode", {"sourcePackage": package(sourceCode="#" * 1_100_000)}, 502),
    ("sourcePackage.encoding", {"sourcePackage": package(encoding="rot13")}, 502),
    ("sourcePackage.integrity", {"sourcePackage": package(integrity="md5-AAAA")}, 502),
    ("sourcePackage.integrity", {"sourcePackage": package(integrity="sha256-AAAA")}, 502),
    ("sourcePackage.integrity", {"sourcePackage": package(integrity="sha256-é")}, 502),
    ("signature", {"sourcePackage": package(signature=7)}, 502),
    ("sourcePackageURL", {"sourcePackage": None}, 502),
    (
        "sourcePackageURL",
        {"sourcePackage": None, "sourcePackageURL": "https://g.example/x.py"},
        502,
    ),
    ("sourcePackageURL", {"sourcePackage": None, "sourcePackageURL": "http://f.example/x.py"}, 502),
    ("sourcePackageURL", {"sourcePackage": None, "sourcePackageURL": "https://["}, 502),
    ("configuration", {"configuration": "{"}, 502),
    ("configuration", {"configuration": [1]}, 502),
    ("configuration.url", {"configuration": {"url": 1}}, 502),
    ("configuration.url", {"configuration": {"url": "wss://g.example/ws"}}, 502),
    ("configuration.url", {"configuration": {"url": "wss://af.example/ws"}}, 502),
    ("configuration.url", {"configuration": {"url": "ws://f.example/ws"}}, 502),
    ("configuration.url", {"configuration": {"url": "file:///etc/passwd"}}, 502),
    ("configuration.url", {"configuration": {"url": "wss://f.example:x/ws"}}, 502),
]


@pytest.mark.parametrize(("field", "changed", "code"), BAD)
def test_a_descriptor_is_refused_by_the_name_of_the_field(
    field: str, changed: dict[str, Any], code: int
) -> None:
    with pytest.raises(DescriptorError) as refused:
        check(descriptor(**changed))
    assert (refused.value.field, refused.value.code) == (field, code)
    assert str(refused.value).startswith(f"{field}: ")


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(sorted(descriptor()) + ["sourceCode", "encoding", "url"]), inner
            )
        ),
        max_leaves=8,
    ),
    st.sampled_from([*sorted(descriptor()), ""]),
)
def test_whatever_a_catalogue_answers_is_read_or_refused(value: Any, name: str) -> None:
    raw = {**descriptor(), name: value} if name else value
    try:
        read = check(raw)
    except DescriptorError as refused:
        assert refused.field
    else:
        assert read.source or read.source_url


@pytest.mark.parametrize(
    "url", ["wss://f.example/ws", "wss://msg-node.f.example:9090/ws", "wss://edge.cdn.example/ws"]
)
def test_r31_a_stub_may_connect_to_its_domain_and_to_listed_hosts(url: str) -> None:
    assert check(descriptor(configuration={"url": url})).endpoint[1] in (443, 9090)


def test_base64_source_is_read() -> None:
    code = base64.b64encode(ECHO.encode()).decode()
    read = check(descriptor(sourcePackage=package(encoding="base64", sourceCode=code)))
    assert read.source == ECHO
    read.check_source(read.source)


def test_a_signature_is_asked_of_domains_whose_key_is_listed() -> None:
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    r, s = utils.decode_dss_signature(key.sign(ECHO.encode(), ec.ECDSA(hashes.SHA256())))
    signature = base64.b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).decode()
    signers = Settings("d.example", signers={"f.example": pem.decode()})
    check(descriptor(sourcePackage=package(signature=signature)), signers).check_source(ECHO)
    for bad in ("", "AAAA", base64.b64encode(bytes(64)).decode()):
        read = check(descriptor(sourcePackage=package(signature=bad)), signers)
        with pytest.raises(DescriptorError, match=r"sourcePackage\.signature"):
            read.check_source(ECHO)


@pytest.mark.parametrize(
    ("source_url", "answer"),
    [
        ("https://g.example/x.py", None),
        ("/f/elsewhere", (302, {"Location": "http://localhost:1/x.py"}, b"")),
        ("/f/large", (200, {}, b"#" * 1_100_000)),
        ("/f/missing", None),
    ],
)
async def test_r29_a_source_is_taken_from_the_host_of_its_descriptor_alone(
    catalogue: FakeCatalogue, source_url: str, answer: Any
) -> None:
    catalogue.serve(descriptor(sourcePackage=None, sourcePackageURL=source_url))
    catalogue.entries[source_url] = answer
    async with World(catalogue) as world:
        assert (await world.ask())["code"] == 502
