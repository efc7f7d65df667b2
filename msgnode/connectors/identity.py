"""The identity manager, domain://idm.<domain>, also `domain-idp://<domain>`.

docs/reference/identity.md, sections 2.1 and 6.
Every message gets one answer: 200 with `value`; 400 for a malformed request; 401 with a description
for an invalid identity, and with `value` {name: "IdPLoginError", loginUrl} if a person must log in
first; 404 for an unknown user; 503 when an issuer is out of reach.

A login binds the subject to the session; the session's rules are in sessions and identity.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from msgnode.bus.ports import Body, Component, Listener, Proof
from msgnode.core.errors import BadMessage, NotFound, NotIdentified
from msgnode.core.identity import Identity
from msgnode.core.messages import Message

from .asking import asked_by
from .identity_requests import Execute, Read, request_of

T = TypeVar("T")

MakeRequest = Callable[..., Any]


class Checked(Proof, Protocol):
    """A verified identity with the contents it binds (the nonce)."""

    @property
    def nonce(self) -> str:
        """The contents that the issuer has bound to it, "" if none."""
        ...


class Desk(Protocol):
    """The identity package, as the connector needs it. Everything ends within seconds."""

    async def prove(self, token: str) -> Checked:
        """Verify a token for a login."""
        ...

    async def own(self, token: str) -> Checked | None:
        """Verify a token with the own provider alone; None if it is no valid one."""
        ...

    async def validate(self, assertion: str, idp: str, profile: Any) -> Checked:
        """Verify an assertion about somebody else; `profile` must agree with it."""
        ...

    async def settled(self, attempt: Callable[[], T]) -> T:
        """Try until nothing that it needs is still being looked up."""
        ...

    async def jwks(self) -> dict[str, Any]:
        """The public keys of the domain's own provider."""
        ...

    async def login_url(self, request: Any) -> str:
        """The URL where a person logs in for this request."""
        ...

    async def assertion(self, request: Any) -> dict[str, Any] | None:
        """An identity token of the own provider; None if a login is needed first."""
        ...

    async def access_token(self, request: Any) -> dict[str, Any] | None:
        """An access token of the own provider; None if a login is needed first."""
        ...

    async def card(self, name: str) -> dict[str, Any] | None:
        """How a user of this domain can be reached; None if there is no card."""
        ...

    async def revoke(self, token: str) -> bool:
        """End a token of the own provider; False if it is none."""
        ...

    def speaks_for(self, idp: str) -> bool:
        """Whether the own provider is the one of this domain name."""
        ...


LogIn = Callable[[Listener, Proof | None], Awaitable[Any] | None]
"""Binds a session to a subject, or to none; returns a future of the commit."""
CheckLogin = Callable[[Proof, Listener], None]
"""Raises Rejected if another runtime has shown the token to its peers."""
Spend = Callable[[Listener], None]
"""Counts a verification that a session asks for. Raises TooMany (429)."""
Subjects = Callable[[str], Identity | None]
"""A subject that is logged in at this moment, by user name, user URL or guid."""
FindElsewhere = Callable[[str], Awaitable[Identity | None]]
"""The same at other workers. Raises Unavailable if one does not answer."""
Invitations = Callable[[Execute, str, Listener], Awaitable[Body]]
"""Answers a request about invitations: the request, its sender's address, and the session."""


def invitations_are_off(request: Execute, sender: str, caller: Listener) -> Awaitable[Body]:
    """Answers for a node without invitations. Raises NotFound."""
    raise NotFound("Invitations are switched off at this node (INVITATIONS).")


class Logins(NamedTuple):
    """The sessions' log-ins, and what verifications may cost.

    Attributes:
        log_in: binds a session to a subject, or (None) to none.
        check_login: checks a token for a session; also one that is to be renewed or revoked.
        spend: counts a verification of a session. Raises TooMany.
    """

    log_in: LogIn
    check_login: CheckLogin
    spend: Spend


class IdentityConnector(Component):
    """Relays to a Desk; see the head of the file.

    `find_elsewhere`, where there are other workers, finds a subject that is not known here.
    `invitations` answers what concerns them.
    """

    name = "identity"
    tells_workers = True
    kind = "connector"

    def __init__(
        self,
        domain: str,
        async_verifier: Desk,
        make_request: MakeRequest,
        logins: Logins,
        subjects: Subjects,
        invitations: Invitations = invitations_are_off,
        find_elsewhere: FindElsewhere | None = None,
    ) -> None:
        super().__init__((f"domain://idm.{domain}", f"domain-idp://{domain}"))
        self._find_elsewhere = find_elsewhere
        self._invitations = invitations
        self._async_verifier = async_verifier
        self._make_request = make_request
        self._logins = logins
        self._subjects = subjects

    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        """Answer a request about identities; all but `read` counts as a verification."""
        return asked_by(caller, self._answer(message, caller))

    def _answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        request = request_of(message.type, message.fields())
        if isinstance(request, Read):
            return self._read(request, caller)
        self._logins.spend(caller)
        match request.method:
            case "validateAssertion":
                return self._validate(request)
            case "login":
                return self._login(request, caller)
            case "logout":
                return self._logout(caller)
            case "getLoginEndpoint" | "getAccessTokenAuthorisationEndpoint":
                return self._login_endpoint(request, caller)
            case "generateAssertion" | "refreshAssertion":
                return self._granted(self._async_verifier.assertion, request, caller)
            case "getAccessToken" | "refreshAccessToken":
                return self._granted(self._async_verifier.access_token, request, caller)
            case "getContact":
                return self._card(request)
            case (
                "subscribePush" | "unsubscribePush"
                | "sendInvitation" | "withdrawInvitation" | "endInvitation" | "reopenInvitation"
            ):  # fmt: skip
                return self._invitations(request, message.sender, caller)
            case _:
                return self._revoke(request, caller)

    # --- identities -------------------------------------------------------------------------------

    async def _validate(self, request: Execute) -> Body:
        assertion = request.text("assertion")
        if not assertion:
            raise request.lacks("assertion")
        profile = request.params.get("userProfile")
        checked = await self._async_verifier.validate(assertion, request.idp, profile)
        contents = request.text("contents")
        if contents and contents != checked.nonce:
            raise NotIdentified("The assertion binds other contents.")
        identity = checked.identity
        value = {
            "identity": identity.username,
            "contents": checked.nonce,
            "claims": _public(identity),
            "assertedIdentity": True,
        }
        return {"code": 200, "value": value, "assertedIdentity": True}

    async def _login(self, request: Execute, caller: Listener) -> Body:
        token = request.token or request.text("assertion")
        if not token and "scope" in request.params:
            return await self._granted(self._async_verifier.assertion, request, caller)
        if not token:
            raise request.lacks("token")
        checked = await self._async_verifier.prove(token)
        committed = await self._async_verifier.settled(lambda: self._logins.log_in(caller, checked))
        if committed is not None:
            await committed
        return {"code": 200, "value": _own(checked.identity)}

    async def _logout(self, caller: Listener) -> Body:
        committed = self._logins.log_in(caller, None)
        if committed is not None:
            await committed
        return {"code": 200}

    def _read(self, request: Read, caller: Listener) -> Body | Awaitable[Body]:
        if request.resource == "jwks":
            return self._keys()
        if not request.resource:
            identity = caller.speaker.identity
            if identity is None:
                raise NotFound("This session is not logged in.")
            return {"code": 200, "value": _own(identity)}
        found = self._subjects(request.resource)
        if found is None and self._find_elsewhere is not None:
            return self._read_elsewhere(request.resource, self._find_elsewhere)
        return _found(found, request.resource)

    async def _read_elsewhere(self, name: str, find: FindElsewhere) -> Body:
        return _found(await find(name), name)

    async def _keys(self) -> Body:
        return {"code": 200, "value": await self._async_verifier.jwks()}

    # --- the domain's own provider ----------------------------------------------------------------

    async def _login_endpoint(self, request: Execute, caller: Listener) -> Body:
        url = await self._async_verifier.login_url(self._asked(request, caller))
        return {"code": 200, "value": url}

    async def _granted(
        self,
        grant: Callable[[Any], Awaitable[dict[str, Any] | None]],
        request: Execute,
        caller: Listener,
    ) -> Body:
        if not self._async_verifier.speaks_for(request.idp):
            raise BadMessage(f"This node does not speak for the identity provider {request.idp}.")
        asked = self._asked(request, caller)
        await self._check_given(asked.token, caller)
        granted = await grant(asked)
        if granted is not None:
            return {"code": 200, "value": granted}
        text = "A login is needed first."
        value = {"name": "IdPLoginError", "loginUrl": await self._async_verifier.login_url(asked)}
        return {"code": 401, "desc": text, "description": text, "value": value}

    async def _card(self, request: Execute) -> Body:
        name = request.text("user")
        if not name:
            raise request.lacks("user")
        card = await self._async_verifier.card(name)
        if card is None:
            raise NotFound(f"There is no card of {name[:200]}.")
        return {"code": 200, "value": card}

    async def _revoke(self, request: Execute, caller: Listener) -> Body:
        if not request.token:
            raise request.lacks("token")
        await self._check_given(request.token, caller)
        if not await self._async_verifier.revoke(request.token):
            raise NotFound("This token is not from this domain's provider.")
        return {"code": 200}

    async def _check_given(self, token: str, caller: Listener) -> None:
        """Check that a token is the caller's, and not one that another runtime has shown to it."""
        checked = await self._async_verifier.own(token)
        if checked is not None:
            await self._async_verifier.settled(lambda: self._logins.check_login(checked, caller))

    def _asked(self, request: Execute, caller: Listener) -> Any:
        identity = caller.speaker.identity
        return self._make_request(
            contents=request.text("contents"),
            origin=request.text("origin"),
            username_hint=request.text("usernameHint", "login"),
            token=request.token or _token_in(request.params.get("identity")),
            resources=request.resources,
            subject=(identity.issuer, identity.subject) if identity else ("", ""),
        )


def _token_in(identity: Any) -> str:
    """The assertion of an identity to be refreshed."""
    assertion = identity.get("assertion") if isinstance(identity, dict) else identity
    return assertion if isinstance(assertion, str) else ""


def _found(identity: Identity | None, name: str) -> Body:
    if identity is None:
        raise NotFound(f"Nobody who is here is known as {name[:200]}.")
    return {"code": 200, "value": _public(identity)}


def _public(identity: Identity) -> dict[str, Any]:
    """The public view of a subject."""
    return {
        "iss": identity.issuer,
        "sub": identity.subject,
        "username": identity.username,
        "userURL": identity.user_url,
        "guid": identity.guid,
        "idp": {"domain": identity.idp_domain},
    }


def _own(identity: Identity) -> dict[str, Any]:
    """The view of a session's own subject. `expires` is in seconds since the epoch."""
    return {**_public(identity), "groups": list(identity.groups), "expires": int(identity.expires)}
