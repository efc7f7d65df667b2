"""Verification that may wait, logins and grants, for the identity manager and the sockets.

Everything here ends within seconds: each wait is for one fetch, which has a limit of its own, and a
verification waits at most twice (for a key set, then for a newer one).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from msgnode.core.errors import NodeError, Unavailable
from msgnode.core.pending import Pending

from .credentials import Rejected, Unknown, idp_domain, present
from .ports import AssertionRequest, Provider
from .verifier import Verified, Verifier

_WAITS = 3
_LIMIT = 5.0

T = TypeVar("T")


class AsyncVerifier:
    """One instance per worker.

    `provider` is None where the domain has no OpenID provider of its own."""

    def __init__(self, verifier: Verifier, provider: Provider | None) -> None:
        self._verifier = verifier
        self.provider = provider

    async def prove(self, token: str) -> Verified:
        """The identity behind a token of any form. Raises NodeError."""
        credential = present(token)
        if credential is None:
            raise Rejected("There is no token.")
        return await self.settled(lambda: self._verifier.verify(credential))

    async def own(self, token: str) -> Verified | None:
        """The identity behind a token, shown to no other provider; None if it has none."""
        credential = self._verifier.ours(present(token))
        if credential is None:
            return None
        try:
            return await self.settled(lambda: self._verifier.verify(credential))
        except (Rejected, Unknown):
            return None

    async def validate(self, assertion: str, idp: str, profile: Any) -> Verified:
        """The identity behind an assertion, with the provider's domain and profile if known."""
        known = profile if isinstance(profile, dict) else {}
        identity = {"assertion": assertion, "idp": {"domain": idp}, "userProfile": known}
        credential = present(identity)
        if credential is None:
            raise Rejected("There is no assertion.")
        return await self.settled(lambda: self._verifier.verify(credential))

    async def settled(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt until the facts it needs have been fetched; return its result."""
        for _ in range(_WAITS):
            try:
                return attempt()
            except Pending as fact:
                known = asyncio.Event()
                fact.when_known(known.set)
                try:
                    await asyncio.wait_for(known.wait(), _LIMIT)
                except TimeoutError:
                    break
        raise Unavailable("The identity cannot be verified at the moment.")

    async def jwks(self) -> dict[str, Any]:
        """The public keys of the domain's own provider."""
        return await self._ask(self._own().keys())

    async def login_url(self, request: AssertionRequest) -> str:
        """The URL where a person logs in."""
        return await self._ask(self._own().login_url(request))

    async def assertion(self, request: AssertionRequest) -> dict[str, Any] | None:
        """An identity object for a grant; None if a login is needed first."""
        return await self._ask(self._own().assertion(request))

    async def access_token(self, request: AssertionRequest) -> dict[str, Any] | None:
        """An access-token object; None if a login is needed first."""
        return await self._ask(self._own().access_token(request))

    async def card(self, name: str) -> dict[str, Any] | None:
        """The card of a user; None if there is none of that name."""
        return await self._ask(self._own().card(name))

    async def revoke(self, token: str) -> bool:
        """Revoke a token of the domain's own provider."""
        return await self._ask(self._own().revoke(token))

    def speaks_for(self, idp: str) -> bool:
        """Whether a provider domain means the domain's own provider."""
        own = self._verifier.book.embedded
        return not idp or (own is not None and idp_domain(idp) in own.all_domains)

    def _own(self) -> Provider:
        if self.provider is None or self._verifier.book.embedded is None:
            raise Unknown("This domain has no identity provider of its own.")
        return self.provider

    @staticmethod
    async def _ask(question: Any) -> Any:
        try:
            async with asyncio.timeout(_LIMIT):
                return await question
        except NodeError:
            raise
        except Exception as fault:
            text = "The identity provider of this domain does not answer at the moment."
            raise Unavailable(text) from fault
