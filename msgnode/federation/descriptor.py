"""Reads a catalogue's descriptor of a foreign protostub, as found in the field. Pure.

A tolerant reader: `configuration` is an object or its JSON text; the source is in the descriptor or
a script of its own, in base64 or as text; bytes that are not UTF-8 are replaced in the text and
kept for the digest. A stub is identified by the digest of its source (SHA-256).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from . import kinds

MAX_SOURCE = 2 * 1024 * 1024
MAX_CONFIGURATION = 64 * 1024
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class BadDescriptor(Exception):
    """The descriptor has no stub that can be run here; the text says why."""


@dataclass(frozen=True, slots=True)
class FoundStub:
    """A stub as its domain offers it.

    Attributes:
        source: its source as text.
        digest: the digest of its bytes, in hexadecimal.
        configuration: its configuration.
        version: its version.
        content: its bytes.
        signature: their signature, as it came.
        signed_by: the id of the key of a verified signature.
        kind: the kind of node that it seems to be of (kinds.py).
    """

    source: str
    digest: str
    configuration: dict[str, Any]
    version: str = ""
    content: bytes = field(default=b"", repr=False)
    signature: str = field(default="", repr=False)
    signed_by: str = ""
    kind: str = kinds.UNKNOWN

    @property
    def url(self) -> str:
        """The URL to which it says that it connects."""
        named = (self.configuration.get(key) for key in ("url", "messagingnode"))
        return next((each for each in named if isinstance(each, str)), "")


def read(descriptor: bytes, script: bytes | None = None) -> FoundStub:
    """Read a descriptor, and the script if it came separately.

    Raises:
        BadDescriptor: it has no stub that can be run here.
    """
    try:
        fields = json.loads(descriptor)
    except (ValueError, RecursionError):
        raise BadDescriptor("The descriptor is no JSON.") from None
    if not isinstance(fields, dict):
        raise BadDescriptor("The descriptor is no JSON object.")
    language = str(fields.get("language") or "").lower()
    if language and not language.startswith(("javascript", "js")):
        raise BadDescriptor(
            f"The stub is written in {language[:40]!r}, and only JavaScript is run."
        )
    if fields.get("interworking") is True:
        raise BadDescriptor("It is a stub for interworking, which needs a whole runtime.")
    content = script if script is not None else _source(fields.get("sourcePackage"))
    if not content:
        raise BadDescriptor("The descriptor has no source.")
    if len(content) > MAX_SOURCE:
        raise BadDescriptor(f"The source is too large: more than {MAX_SOURCE} bytes.")
    version = str(fields.get("version") or "")[:64]
    if b"\0" in content or not version.isprintable():
        raise BadDescriptor("There are characters in its source or version that none has.")
    source = content.decode(errors="replace")
    return FoundStub(
        source,
        hashlib.sha256(content).hexdigest(),
        _configuration(fields.get("configuration")),
        version,
        content,
        _signature(fields),
        kind=kinds.guessed((*_names(fields), source)),
    )


def _names(fields: dict[str, Any]) -> list[str]:
    """The names that a descriptor gives its stub."""
    package = fields.get("sourcePackage")
    name = package.get("sourceCodeClassname") if isinstance(package, dict) else ""
    return [each for each in (fields.get("objectName"), name) if isinstance(each, str)]


def _signature(fields: dict[str, Any]) -> str:
    """The signature from either of its two places; the field leaves both empty."""
    package = fields.get("sourcePackage")
    inner = package.get("signature") if isinstance(package, dict) else ""
    return next(
        (each for each in (inner, fields.get("signature")) if isinstance(each, str) and each), ""
    )


def _source(package: object) -> bytes:
    if not isinstance(package, dict):
        return b""
    text = package.get("sourceCode")
    if not isinstance(text, str):
        return b""
    if str(package.get("encoding") or "").lower() == "base64":
        try:
            return base64.b64decode(text)
        except (binascii.Error, ValueError):
            raise BadDescriptor("The source is not in base64, as the descriptor says.") from None
    return text.encode(errors="replace")


def _configuration(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            raise BadDescriptor("The configuration is no JSON.") from None
    if value in (None, []):
        return {}
    if not isinstance(value, dict) or len(json.dumps(value)) > MAX_CONFIGURATION:
        raise BadDescriptor("The configuration is no JSON object of a usual size.")
    text = json.dumps(value, ensure_ascii=False)
    if _NUL.search(text) or not _is_text(text):
        raise BadDescriptor("The configuration holds NUL, or half of a character.")
    return value


def _is_text(text: str) -> bool:
    """Whether a text has no lone surrogate, which cannot be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
