"""The interfaces of identity to the embedded OpenID provider, guests and revocations.

The provider (msgnode.identity.provider) is called in-process, never over HTTP; node/ wires it.
Contract: issuer = PUBLIC_URL + "/o"; discovery at `<issuer>/.well-known/openid-configuration`, keys
at `<issuer>/.well-known/jwks.json`; tokens are signed with RS256, `aud` is the client id; claims
are sub, email, email_verified, preferred_username, name and, if the client sent one, nonce.

Rules
- Every coroutine may be called on the event loop: it does its database work in a thread and ends
  within seconds. An error it raises counts as "out of reach", never as "refused".
- Tokens are never logged; a token is identified by `digest(token)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from msgnode.bus.ports import Listener
from msgnode.core.messages import Message

Claims = dict[str, Any]
"""Claims as JSON: `iss`, `sub` texts; `exp`, `iat` whole seconds since the epoch; `aud` text or
list."""


class Guests(Protocol):
    """Guests: sessions that may speak without an identity because a user here has invited them."""

    def may_say(self, message: Message, session: Listener) -> bool:
        """Whether a guest's session may send this; False for one that was never invited.

        Raises:
            Pending: that is being looked up.
            Forbidden: it is a guest, and was not invited to this.
            Unavailable: it cannot be looked up.
        """
        ...


class NoGuests:
    """The Guests of a node without invitations."""

    def may_say(self, message: Message, session: Listener) -> bool:
        """Always False: a message without an identity is refused as usual."""
        return False


NO_GUESTS = NoGuests()

REVOKED = "identity.revoked"
"""The kind of the control message that ends identities at once, in every worker. Its payload has

    issuer, subject   every identity of this subject (both are needed), or
    token             `digest()` of one token, and whatever was verified by it
    close             true: close the sessions it bound (4401); false: they become anonymous
"""

ISSUERS_CHANGED = "issuers.changed"
"""Kind of the control message after which workers read the issuers again. No payload."""


@dataclass(frozen=True, slots=True)
class AssertionRequest:
    """The params of a message to an identity provider, as far as they were given.

    docs/reference/identity.md, section 2.1.

    contents       what the assertion shall bind as `nonce`: the text of the user's public key
    origin         the origin of the requesting page
    username_hint  as sent: a user name, or the redirect URL with which the login came back
    token          the access token or identity token that the request is about
    resources      the resources for which an access token is requested
    subject        (issuer, subject) the session is bound to, ("", "") for an anonymous one
    """

    contents: str = ""
    origin: str = ""
    username_hint: str = ""
    token: str = ""
    resources: tuple[str, ...] = ()
    subject: tuple[str, str] = ("", "")


class Provider(Protocol):
    """The embedded OpenID provider."""

    @property
    def issuer(self) -> str:
        """The exact text of its `iss`."""
        ...

    async def keys(self) -> dict[str, Any]:
        """The public keys as a JWK set: {"keys": [...]}; two during a rotation."""
        ...

    async def client_ids(self) -> frozenset[str]:
        """The client ids whose tokens this node takes (`aud`)."""
        ...

    async def introspect(self, token: str) -> Claims | None:
        """Claims of an opaque access token: iss, sub, exp, client_id, scope and the user's.

        None if it is unknown, expired or revoked.
        """
        ...

    async def login_url(self, request: AssertionRequest) -> str:
        """The URL where a person logs in, with the request's contents as nonce."""
        ...

    async def assertion(self, request: AssertionRequest) -> dict[str, Any] | None:
        """An identity for a grant the request carries.

        Returns:
            An object as in docs/reference/identity.md, section 3; None: a login is needed first.
        """
        ...

    async def access_token(self, request: AssertionRequest) -> dict[str, Any] | None:
        """An access token, new or refreshed (request.token).

        Returns:
            An object as in docs/reference/identity.md, section 3; None: a login is needed first.
        """
        ...

    async def card(self, name: str) -> dict[str, Any] | None:
        """The card of a user: assertion, userURL, protostub, expires.

        None if nobody has that name, or the user has no card.
        """
        ...

    async def revoke(self, token: str) -> bool:
        """Revoke a token (access, refresh); whether it was one of ours. Also posts REVOKED."""
        ...
