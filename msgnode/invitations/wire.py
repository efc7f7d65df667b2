"""Invitations as they are written: read strictly, because anybody may write one. Pure.

docs/reference/runtime.md, section 8.5. A message of at most MAX_BYTES:

    {"type": "create", "id", "from": <caller's hyperty>, "to": <user URL>, "body": {
        "value": {"invitation": <name>, "expires": <seconds since the epoch>, "resource"?},
        "identity": {"assertion": <JWT of the caller's provider>, "idp": {"domain"}},
        "protostub": <catalogue URL of the stub that leads to the caller>}}

What is passed on is written anew from what is known; the node does not judge the assertion, the
receiver's runtime does.
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

import msgspec

from msgnode.core import addresses
from msgnode.core.errors import BadMessage

MAX_BYTES = 4_096
MAX_SECONDS = 600
"""Most seconds for which an invitation is valid and stored."""
LEAST_SECONDS = 2
"""How long a message with a TTL of 0 is kept: until the workers have looked for its runtime."""
MAX_NAME = 128
INVITATION_LEFT = "invitation.left"
"""The kind of the control message to check a runtime. Payload: runtime_url."""


class Invitation(NamedTuple):
    """`expires` is in seconds since the epoch; `message` is the body for the runtime."""

    name: str
    caller: str
    user_url: str
    expires: int
    message: dict[str, Any]


def expiry(now: float, seconds: float) -> int:
    """When an invitation ends that is good for so long: in whole seconds, counted up."""
    return ceil(now + seconds)


def read(frame: bytes, now: float) -> Invitation:
    """Parse an untrusted invitation. Raises BadMessage, which names the error."""
    try:
        said = msgspec.json.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage(f"The body is no JSON: {error}") from None
    if not isinstance(said, dict) or said.get("type") != "create":
        raise BadMessage("An invitation is a message of type create.")
    body, caller, user_url = said.get("body"), _address(said, "from"), _address(said, "to")
    value = body.get("value") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(value, dict):
        raise BadMessage("`body.value` must be an object.")
    if addresses.parse(user_url).scheme != "user":
        raise BadMessage("`to` must be a user URL.")
    name, expires = value.get("invitation"), value.get("expires")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise BadMessage(f"`invitation` must be a text of at most {MAX_NAME} characters.")
    if isinstance(expires, bool) or not isinstance(expires, int | float):
        raise BadMessage("`expires` must be in seconds since the epoch.")
    if not now < expires <= expiry(now, MAX_SECONDS):
        raise BadMessage(f"`expires` must be within {MAX_SECONDS} seconds from now.")
    told = {"invitation": name, "expires": int(expires)}
    if "resource" in value:
        told["resource"] = _address(value, "resource")
    identity = body.get("identity")
    assertion = identity.get("assertion") if isinstance(identity, dict) else None
    if not isinstance(assertion, str) or not assertion:
        raise BadMessage("`body.identity.assertion` must say who invites.")
    message = {
        "from": caller,
        "to": user_url,
        "value": told,
        "identity": {"assertion": assertion, "idp": {"domain": addresses.parse(caller).home}},
        "protostub": _address(body, "protostub"),
    }
    return Invitation(name, caller, user_url, int(expires), message)


def seconds_kept(said: str) -> int:
    """How long a message with this TTL (RFC 8030) is kept. Raises BadMessage."""
    if not said.isdecimal() or len(said) > 10:
        raise BadMessage("The header TTL must say for how many seconds the message is kept.")
    return max(LEAST_SECONDS, min(int(said), MAX_SECONDS))


def _address(said: dict[str, Any], name: str) -> str:
    text = said.get(name)
    if not isinstance(text, str) or not text or len(text) > addresses.MAX_HELD:
        raise BadMessage(f"`{name}` must be an address of at most {addresses.MAX_HELD} characters.")
    parsed = addresses.parse(text)
    if not text.isprintable() or not parsed.scheme or not parsed.domain:
        raise BadMessage(f"`{name}` must be an address with a domain.")
    return text
