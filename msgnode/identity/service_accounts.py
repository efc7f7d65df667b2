"""Logs network servers in with an API key, whose scopes say what their sessions may do.

`device:connect` allows to open a session at /device/v1; `device:many` also allows a webhook. The
session's identity is the key's: issuer `urn:api-key`, subject `urn:api-key:<prefix>`, its scopes as
groups; it ends when the key does.
"""

from __future__ import annotations

from typing import NamedTuple

from msgnode.core.errors import Forbidden, NotIdentified, TooMany
from msgnode.core.http_limits import HTTP_LIMITS
from msgnode.core.identity import API_KEY_ISSUER, Identity
from msgnode.models import ApiKey
from msgnode.storage.database_threads import in_any_thread

from .api_keys import MARK, MISSES_PER_MINUTE, find

CONNECT, MANY = "device:connect", "device:many"


class KeyProof(NamedTuple):
    """The Proof of a key. A key may open many sessions, so no digest binds it to one."""

    identity: Identity
    digest: str = ""


def is_key(text: str) -> bool:
    """Whether a credential is meant to be an API key."""
    return text.startswith(f"{MARK}_")


def subject_of(key: ApiKey) -> str:
    """The subject of a key's sessions."""
    return f"urn:api-key:{key.prefix}"


async def prove(text: str, source: str) -> KeyProof:
    """Verify an API key, and that it may open sessions.

    Raises:
        NotIdentified: it is unknown, has expired or was disabled.
        Forbidden: it lacks the scope.
        TooMany: too many wrong keys came from this source.
    """
    misses = ("wrong key", source, MISSES_PER_MINUTE)
    if HTTP_LIMITS.is_spent(*misses):
        raise TooMany("Too many wrong keys came from your address: try again in a minute.")
    key = await in_any_thread(find, text)
    if key is None:
        HTTP_LIMITS.take(*misses)
        raise NotIdentified("This key is not known, has expired or was switched off.")
    if CONNECT not in key.scopes:
        raise Forbidden(f"This key lacks the scope {CONNECT}.")
    subject = subject_of(key)
    groups = tuple(map(str, key.scopes))
    ends = key.expires_at.timestamp()
    return KeyProof(Identity(API_KEY_ISSUER, subject, subject, groups=groups, expires=ends))


def may_have_webhooks(identity: Identity | None) -> bool:
    """Whether a session of this identity may have webhooks."""
    return identity is not None and identity.issuer == API_KEY_ISSUER and MANY in identity.groups
