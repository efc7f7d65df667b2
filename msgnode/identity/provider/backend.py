"""The embedded OpenID provider as a worker sees it: implements ports.Provider.

Its work with the database is done in a thread; nothing here is on the path of a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from django.conf import settings
from django.db import close_old_connections

from msgnode.identity.ports import AssertionRequest, Claims

from . import cards, clients, grants, keys, revocation

Result = TypeVar("Result")


class EmbeddedProvider:
    """Stateless: all of it is in the database, shared with the console and other workers."""

    @property
    def issuer(self) -> str:
        """The URL that its tokens name as `iss`."""
        return str(settings.PROVIDER["ISSUER"])

    async def keys(self) -> dict[str, Any]:
        """Its public keys, the one that signs and those that did lately, as a JWK set."""
        return await _in_thread(keys.jwk_set)

    async def client_ids(self) -> frozenset[str]:
        """The clients that its tokens may be for (`aud`)."""
        return frozenset(await _in_thread(clients.audiences))

    async def introspect(self, token: str) -> Claims | None:
        """The claims of an access token; None if it is none of ours, or not good any more."""
        return await _in_thread(lambda: grants.claims_of_token(token))

    async def login_url(self, request: AssertionRequest) -> str:
        """Where a person logs in for what is asked."""
        return grants.login_url(request)

    async def assertion(self, request: AssertionRequest) -> dict[str, Any] | None:
        """An identity token for who is logged in; None if a login is needed first."""
        return await _in_thread(lambda: grants.assertion(request))

    async def access_token(self, request: AssertionRequest) -> dict[str, Any] | None:
        """An access token for who is logged in; None if a login is needed first."""
        return await _in_thread(lambda: grants.access_token(request))

    async def card(self, name: str) -> dict[str, Any] | None:
        """How a user can be reached; None if nobody has this name, or wants to be found."""
        return await _in_thread(lambda: cards.card_of(name))

    async def revoke(self, token: str) -> bool:
        """End a token; whether it was one of ours."""
        return await _in_thread(lambda: revocation.revoke_token(token))


async def _in_thread(work: Callable[[], Result]) -> Result:
    def worked() -> Result:
        close_old_connections()
        try:
            return work()
        finally:
            close_old_connections()

    return await asyncio.to_thread(worked)
