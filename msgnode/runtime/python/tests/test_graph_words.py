"""The Graph Connector: the words from which a person's keys and GUIDs follow.

The numbers of cases are those of docs/reference/registry.md.
"""

from __future__ import annotations

import pytest
from graph_registry import VECTOR, WORDS

from msgnode.runtime.python.graph import keys
from msgnode.runtime.python.graph.errors import GraphError


def test_case_31_the_words_give_the_key_the_salt_and_both_guids() -> None:
    found = keys.keys_of(WORDS)
    assert found.private.private_numbers().private_value == int(VECTOR["private"], 16)
    assert (found.public_key, found.salt) == (VECTOR["publicKey"], VECTOR["salt"])
    assert (found.guid, found.legacy_guid) == (VECTOR["guid"], VECTOR["legacy"])
    assert keys.keys_of(f"  {WORDS.upper().replace(' ', chr(10))} ").guid == found.guid


def test_the_master_key_is_that_of_bip_32() -> None:
    """Test vector 1 of BIP-32."""
    key = keys._master_key(bytes(range(16))).private_numbers().private_value
    assert f"{key:064x}" == "e8f32e723decf4051aefac8e2c93c9c5b214313817cdb01a1494b917c8436b35"


def test_new_words_are_good_and_never_the_same() -> None:
    one, other = keys.new_words(), keys.new_words()
    assert one != other
    assert keys.keys_of(one).guid != keys.keys_of(other).guid


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "0 words"),
        (WORDS.rpartition(" ")[0], "15 words"),
        (f"{WORDS} zebra", "17 words"),
        (WORDS.replace("address", "adress"), "Word 15"),
        (WORDS.replace("address", "zoo"), "belong together"),
    ],
)
def test_words_that_are_none_are_refused_and_not_repeated(words: str, said: str) -> None:
    with pytest.raises(GraphError, match=said) as caught:
        keys.keys_of(words)
    assert caught.value.code == 400
    assert "abandon" not in str(caught.value)
