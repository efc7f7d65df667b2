"""Pseudonyms for addresses: scheme and domain stay readable, what follows becomes a keyed hash.

The same address always has the same pseudonym, so talkers can be counted and told apart; who they
are, only the holder of the key can find out, by hashing an address he knows. A new key makes all
pseudonyms new. Only distinct values are hashed, so the cost does not grow with traffic.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_HEAD = re.compile(r"[^:/]+:(?://[^/]*/?)?")
_DIGEST_BYTES = 10


def pseudonym(address: str, key: bytes) -> str:
    """The address with all but scheme and domain hashed.

    >>> pseudonym("hyperty://example.org/7e2", b"key")
    'hyperty://example.org/~fltco5e25kh4mcz7'
    """
    if not address:
        return ""
    found = _HEAD.match(address)
    head = found.group() if found else ""
    if head == address:
        return address
    digest = hashlib.blake2b(address.encode(), key=key[:64], digest_size=_DIGEST_BYTES)
    return f"{head}~{base64.b32encode(digest.digest()).decode().lower()}"


def pseudonymised(table: pa.Table, key: bytes) -> pa.Table:
    """The table with its dictionaries of addresses made over."""
    import pyarrow as pa

    from msgnode.traffic.columns import NAMES, texts

    for name in NAMES:
        encoded = table[name].unify_dictionaries().combine_chunks()
        made = texts([pseudonym(text, key) for text in encoded.dictionary.to_pylist()])
        distinct = made.dictionary_encode()
        indices = distinct.indices.take(encoded.indices)
        column = pa.DictionaryArray.from_arrays(indices, distinct.dictionary)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
