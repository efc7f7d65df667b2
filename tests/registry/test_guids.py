"""GUIDs and signatures against published vectors: docs/reference/registry.md, cases 31
and 32."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from registry.global_registry import guids, signed

VECTORS = json.loads((Path(__file__).parent / "guid_vectors.json").read_text())


def decoded(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def record_of(jwt: str) -> dict[str, Any]:
    return decoded(decoded(jwt.split(".")[1])["data"])


def named(vector: dict[str, Any]) -> str:
    return str(vector["name"])


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_case_31_a_guid_follows_from_key_and_salt(vector: dict[str, Any]) -> None:
    record = record_of(vector["jwt"])
    key = signed.key_text(record["publicKey"])
    assert guids.derive(key, record["salt"]) == vector["standard"] == record["guid"]
    assert guids.is_of(vector["standard"], key, record["salt"])


@pytest.mark.parametrize("vector", [v for v in VECTORS if "legacy" in v], ids=named)
def test_case_31_the_guid_of_older_runtimes_is_known(vector: dict[str, Any]) -> None:
    record = record_of(vector["jwt"])
    assert guids.derive_legacy(record["publicKey"], record["salt"]) == vector["legacy"]
    assert guids.is_of(vector["legacy"], record["publicKey"], record["salt"])
    assert not guids.is_of(vector["legacy"], record["publicKey"], record["salt"] + "x")


def test_case_31_the_readme_example_is_reproduced_in_both_variants() -> None:
    key = (
        "-----BEGIN PUBLIC KEY-----MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAE0ptQ88nO42/WDfuNNiNrHlaCGTRswXvb"
        "vfY9Ttg9RkVfqhBVKK+V1tHkNPp/WRzIQKwLKDgAzujAxzN8LhI7Hg==-----END PUBLIC KEY-----"
    )
    salt = "SpHuXwEGwrNcEcFoNS8Kv79PyGFlxi1v"
    assert guids.derive(key, salt) == "IrPlcKOXXmHvoIK0MourpB6byi593L-nbKS_O9XJSPY"
    assert guids.derive_legacy(key, salt) == "ekoykbwYXvZUNd8nm8bBU9APfG8NNXLNDmXPk7kiNdg"


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_case_32_a_signature_verifies_in_either_encoding(vector: dict[str, Any]) -> None:
    text, _, signature = vector["jwt"].rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    key = signed.key_text(record_of(vector["jwt"])["publicKey"])
    assert signed.is_signed(text, raw, key)
    for at in (3, len(raw) // 2, len(raw) - 1):
        flipped = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        assert not signed.is_signed(text, flipped, key)
    assert not signed.is_signed(text + "x", raw, key)


@pytest.mark.parametrize("vector", [v for v in VECTORS if v["storable"]], ids=named)
def test_a_vector_is_read_whole(vector: dict[str, Any]) -> None:
    read = signed.read(vector["jwt"])
    assert read.guid == vector["standard"]
    assert read.user_ids == ("user://example.com/alice",)
    assert read.jwt == vector["jwt"]
    assert (read.is_active, read.is_revoked) == (True, False)
