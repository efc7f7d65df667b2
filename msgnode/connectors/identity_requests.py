"""The messages of the identity manager, read with all their spellings. Pure.

docs/reference/identity.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgnode.core.errors import BadMessage

METHODS = frozenset(
    {
        *("getLoginEndpoint", "validateAssertion", "generateAssertion", "refreshAssertion"),
        *("getAccessToken", "getAccessTokenAuthorisationEndpoint", "refreshAccessToken"),
        *("revokeAccessToken", "login", "logout", "getContact"),
        *("subscribePush", "unsubscribePush", "sendInvitation", "withdrawInvitation"),
        *("endInvitation", "reopenInvitation"),
    }
)
MAX_RESOURCES = 64


@dataclass(frozen=True, slots=True)
class Execute:
    """`method` with its params, whichever form they had."""

    method: str
    params: dict[str, Any] = field(default_factory=dict)

    def text(self, *names: str) -> str:
        """The first of these params that is a text, or ""."""
        found = (self.params.get(name) for name in names)
        return next((each for each in found if isinstance(each, str) and each), "")

    def lacks(self, name: str) -> BadMessage:
        """The refusal of a request without this text, or with something else in its place."""
        if self.params.get(name) in (None, ""):
            return BadMessage(f"{self.method} needs params.{name}.")
        return BadMessage(f"params.{name} must be a text.")

    @property
    def idp(self) -> str:
        """The identity provider's domain: `idpDomain`, in the specification `ipDomain`."""
        return self.text("idpDomain", "ipDomain")

    @property
    def token(self) -> str:
        """The token in a request: `token` or `accessToken`, plain or in an object."""
        for name in ("token", "accessToken", "idToken"):
            value = self.params.get(name)
            if isinstance(value, dict):
                value = value.get("accessToken") or value.get("token")
            if isinstance(value, str) and value:
                return value
        return ""

    @property
    def resources(self) -> tuple[str, ...]:
        """What an access token is asked for, at most MAX_RESOURCES."""
        listed = self.params.get("resources")
        listed = [listed] if isinstance(listed, str) else listed
        if not isinstance(listed, list):
            return ()
        return tuple(each for each in listed[:MAX_RESOURCES] if isinstance(each, str))


@dataclass(frozen=True, slots=True)
class Read:
    """`resource`: "" for the session's own identity, "jwks", or a user's name, URL or guid."""

    resource: str


def request_of(type_: str, body: dict[str, Any]) -> Execute | Read:
    """Parse a request. Raises BadMessage (400), which names the error."""
    if type_ == "read":
        return Read(_resource(body))
    if type_ != "execute":
        raise BadMessage("The identity manager takes execute and read.")
    method = body.get("method")
    if method in (None, ""):
        raise BadMessage("`execute` needs body.method.")
    if not isinstance(method, str):
        raise BadMessage("body.method must be a text.")
    if method not in METHODS:
        raise BadMessage(f"The identity manager has no method {method[:64]!r}.")
    return Execute(method, _params(body.get("params")))


def _params(params: Any) -> dict[str, Any]:
    """Params as an object: given so, as a list of one object, or as a list of pairs."""
    if params is None:
        return {}
    if isinstance(params, dict):
        return params
    if isinstance(params, list):
        merged: dict[str, Any] = {}
        for each in params[:MAX_RESOURCES]:
            if isinstance(each, dict):
                merged.update(each)
            elif isinstance(each, list) and len(each) == 2 and isinstance(each[0], str):
                merged[each[0]] = each[1]
            else:
                raise BadMessage("body.params is a list of something else than objects and pairs.")
        return merged
    raise BadMessage("body.params must be an object, or a list of objects or pairs.")


def _resource(body: dict[str, Any]) -> str:
    resource = body.get("resource", "")
    if not isinstance(resource, str):
        raise BadMessage("body.resource must be a text.")
    return resource.strip().removeprefix("/identity/").removeprefix("/").rstrip("/")
