"""Who is logged in at a runtime: shown to the home node, renewed before it ends, shown again later.

| identity                             |                                                        |
|--------------------------------------|--------------------------------------------------------|
| None                                 | nobody: the node decides what a session may do then    |
| openid(…), or what has token(),      | renewed when four fifths of its time, or all but a     |
|   renew() and log_out()              |   minute of it, are over                               |
| {"accessToken": …}, {"idToken": …}   | a token that the application has got itself            |
| {"assertion": …, "idp"?,             | as the field's identity modules give it                |
|   "userProfile"?}                    |                                                        |

Rules
- Anything else is a TypeError: a node that asks for no identity would let a wrong one in as nobody.
- The node has to accept it: log_in() raises with the node's reason, and what is refused later is
  told (on_identity).
- A provider or node that is away is asked again, until one of them refuses, also when the identity
  has ended meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .arguments import check_function
from .hyperties import AnswerError
from .message_bus import MessageBus
from .messages import body_of, code_of
from .open_id import OpenIdError, Token

SOON = 60.0  # seconds before it ends
SLACK = 5.0  # seconds that the node's clock may be ahead
OVER = (401, 403)  # another try is no use
RETRY = 5.0  # seconds, doubling
WITHOUT_MANAGER = (404, 405, 501)
SHAPES = 'openid(…), {"accessToken": …}, {"idToken": …}, or {"assertion": …, "idp": …}'

Identity = Any


class TokenSource(Protocol):
    """Gives tokens, and newer ones before they end; `renew` and `log_out` may be missing."""

    async def token(self) -> Token:
        """The token to show."""
        ...


@dataclass(frozen=True, slots=True)
class IdentityEvent:
    """What became of a log-in.

    Attributes:
        state: "logged-in", "renewed", "expired", "failed" or "logged-out".
        user: the user URL.
        expires: in seconds since 1970, if it is known.
        error: why, if anything went wrong.
    """

    state: str
    user: str
    expires: float | None = None
    error: Exception | None = None


class LogIn:
    """The log-in of one runtime.

    Args:
        bus: of the runtime.
        domain: its home.
        show: have the home stub show an identity from now on.
    """

    def __init__(
        self, bus: MessageBus, domain: str, show: Callable[[Identity], Awaitable[None]]
    ) -> None:
        self.user = ""
        self.identity: Identity = None
        self._bus = bus
        self._domain = domain
        self._show = show
        self._source: Any = None
        self._expires: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._listeners: list[Callable[[IdentityEvent], object]] = []

    async def take(self, said: Any) -> Identity:
        """Take an identity, as above: what the stub is to show. Raises TypeError, OpenIdError."""
        self.stop()
        self._source = source_of(said)
        self._expires, self.identity = None, None
        if isinstance(self._source, _Field):
            self.identity = self._source.identity
        elif self._source is not None:
            self._use(await self._source.token())
        return self.identity

    async def accepted(self, state: str = "logged-in") -> None:
        """The home stub is live: the node is to accept the identity. Raises AnswerError."""
        if self.identity is None:
            return
        try:
            await self._at_node("login", {"token": self.identity["assertion"]})
        except AnswerError as error:
            if error.code not in WITHOUT_MANAGER:  # a node of the field has judged it at the open
                raise
        if self._task is None:
            self._task = asyncio.create_task(self._keep())
        self._tell(state)

    async def end(self) -> None:
        """Log out, at the node and where the identity came from."""
        self.stop()
        source, identity = self._source, self.identity
        self._source = self.identity = None
        if identity is None:
            return
        with contextlib.suppress(AnswerError):  # its session ends anyway
            await self._at_node("logout", {})
        if hasattr(source, "log_out"):
            await source.log_out()
        self._tell("logged-out")
        self.user = ""

    def listen(self, listener: Callable[[IdentityEvent], object]) -> Callable[[], None]:
        """Hear of what becomes of it. Returns what ends that."""
        check_function("listener", listener)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def renew_if_ended(self) -> None:
        """The home stub connects or was refused: an identity that has ended is renewed now."""
        if self._expires is not None and time.time() >= self._expires - SLACK:
            self._hurry.set()

    def stop(self) -> None:
        """Renew nothing any more."""
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None

    def _use(self, token: Token) -> None:
        self._expires = token.expires or None
        self.identity = {"assertion": token.token}

    async def _at_node(self, method: str, params: Mapping[str, Any]) -> None:
        message = {
            "type": "execute",
            "from": f"{self._bus.runtime_url}/registry/",
            "to": f"domain://idm.{self._domain}",
            "body": {"method": method, "params": dict(params)},
        }
        try:
            answer = await self._bus.request(message)
        except TimeoutError as error:
            raise AnswerError({"code": 408}, str(error)) from None
        body = body_of(answer)
        if (code := code_of(answer)) >= 300:
            words = body.get("desc") or body.get("description") or f"The node answered {code}."
            raise AnswerError(body, str(words))
        value = body.get("value")
        told = value if isinstance(value, dict) else {}
        if isinstance(told.get("userURL"), str):
            self.user = told["userURL"]
        if self._expires is None and isinstance(told.get("expires"), (int, float)):
            self._expires = float(told["expires"]) or None

    async def _keep(self) -> None:
        """Renew it before it ends, again and again."""
        failures = 0
        while self._expires is not None:
            left = self._expires - time.time()
            can_renew = hasattr(self._source, "renew")
            wait = max(left - SOON, left * 0.8) if can_renew else left
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    RETRY * 2 ** min(failures - 1, 6) if failures else max(wait, 0)
                ):
                    await self._hurry.wait()
            if self._hurry.is_set():
                failures = 0
            self._hurry.clear()
            if not can_renew:
                self._tell("expired")
                return
            try:
                self._use(await self._source.renew())
                await self._show(self.identity)
                await self.accepted("renewed")
                failures = 0
                self._hurry.clear()
            except (OpenIdError, AnswerError) as error:
                is_over = error.code in OVER
                self._tell("expired" if is_over else "failed", error)
                if is_over:
                    return
                failures += 1

    def _tell(self, state: str, error: Exception | None = None) -> None:
        event = IdentityEvent(state, self.user, self._expires, error)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception as fault:
                self._bus.report("listener.failed", f"{fault!r}", None, fault)
        if error is not None and not self._listeners:
            self._bus.report("identity.lost", f"The log-in was lost: {error}", None, error)


@dataclass(frozen=True, slots=True)
class _Field:
    """An identity as the field's modules give it."""

    identity: Mapping[str, Any]


class _Given:
    """A token that the application has got itself."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> Token:
        """That."""
        return Token(self._token, 0.0)


def source_of(said: Any) -> Any:
    """What gives tokens for an identity; None for nobody. Raises TypeError."""
    if said is None or callable(getattr(said, "token", None)):
        return said
    if not isinstance(said, Mapping):
        raise _wrong(f"not a {type(said).__name__}")
    name = next((each for each in ("accessToken", "idToken", "assertion") if each in said), "")
    if not name:
        raise _wrong(f"it has {', '.join(map(str, said)) or 'nothing'}")
    if not _is_text(said[name]):
        raise _wrong(f"{name} is a text that is not empty")
    if name == "assertion":
        idp = said.get("idp")
        domain = idp.get("domain") if isinstance(idp, Mapping) else idp
        if idp is not None and not _is_text(domain):
            raise _wrong("idp is a domain, or an object with one")
        return _Field(dict(said))
    if len(said) > 1:
        raise _wrong(f"beside {name} there is nothing else")
    return _Given(said[name])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _wrong(why: str) -> TypeError:
    return TypeError(f"identity is {SHAPES}: {why}.")
