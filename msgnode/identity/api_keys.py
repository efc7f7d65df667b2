"""Service accounts: programs that use /api/v1 and the field's endpoints with a key of their own.

    Authorization: Bearer mnk_<prefix>_<secret>

Rules
- The secret (256 random bits) is shown once and stored as its SHA-256; the prefix finds the row.
- A key allows what its scopes say and nothing else, whatever the node's access settings are.
- After a rotation the old secret works for OVERLAP, so that a client can be changed without a gap.
- Use is recorded at most once a minute. An address that sends wrong keys is rate-limited.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from msgnode.core.digest import digest
from msgnode.core.http_limits import HTTP_LIMITS, WINDOW
from msgnode.models import ApiKey
from msgnode.web.proxies import address_of, source_of_request

SCOPES: Mapping[str, tuple[str, frozenset[str]]] = {
    "registry:read": (
        "Read the registry",
        frozenset(
            f"registry.view_{model}"
            for model in ("hyperty", "dataobject", "user", "statuschange", "globalrecord")
        ),
    ),
    "registry:write": (
        "Write into the registry",
        frozenset({"registry.change_hyperty", "registry.view_hyperty"}),
    ),
    "reports:read": (
        "Read reports and their runs",
        frozenset({"spark.view_report", "spark.view_reportrun"}),
    ),
    "reports:run": ("Ask for reports", frozenset({"spark.add_reportrun"})),
    "device:connect": ("Open sessions at /device/v1", frozenset()),
    "device:many": ("Be a network server: have webhooks", frozenset()),
    "status:read": ("Read the state of the node", frozenset({"msgnode.view_componentstatus"})),
}
MARK = "mnk"
OVERLAP = timedelta(hours=24)

MISSES_PER_MINUTE = 60
_NOTED_EVERY = timedelta(minutes=1)


class ServiceAccount:
    """Takes the place of a user: authenticated, without a session, with the scopes' rights."""

    is_authenticated = True
    is_anonymous = False
    is_active = True
    is_staff = False
    is_superuser = False

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.pk = f"key {key.pk}"
        rights = (SCOPES[scope][1] for scope in key.scopes if scope in SCOPES)
        self._rights: frozenset[str] = frozenset().union(*rights)

    def get_username(self) -> str:
        """A name that no user can have, for logs and for the history of changes."""
        return f"key:{self.key.name}"

    __str__ = get_username

    def has_perm(self, right: str, obj: Any = None) -> bool:
        """Whether the key has this right; objects make no difference."""
        return right in self._rights

    def has_perms(self, rights: Iterable[str], obj: Any = None) -> bool:
        """Whether the key has all of these rights."""
        return self._rights.issuperset(rights)


class ApiKeyAuthentication(BaseAuthentication):
    """Authenticates a request with a key. Other credentials are left to the next class."""

    kinds: ClassVar[tuple[str, ...]] = ("bearer", "api-key")

    def authenticate(self, request: Request) -> tuple[ServiceAccount, ApiKey] | None:
        """The account of the key in the header; None if it has no key of this kind."""
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        given = given.strip()
        if kind.lower() not in self.kinds or not given.startswith(f"{MARK}_"):
            return None
        misses = ("wrong key", source_of_request(request._request), MISSES_PER_MINUTE)
        if HTTP_LIMITS.is_spent(*misses):
            raise Throttled(wait=WINDOW)
        key = find(given)
        if key is None:
            HTTP_LIMITS.take(*misses)
            raise AuthenticationFailed("This key is not known, has expired or was switched off.")
        if HTTP_LIMITS.take("key", key.prefix, settings.CLIENT_REQUESTS_PER_MINUTE):
            raise Throttled(wait=WINDOW)
        _note_use(key, request._request)
        return ServiceAccount(key), key

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401."""
        return 'Bearer realm="node"'


class ApiKeyScheme(OpenApiAuthenticationExtension):
    """The name of this authentication in the OpenAPI document."""

    target_class = ApiKeyAuthentication
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        """The key as OpenAPI describes it."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": f"{MARK}_<prefix>_<secret>"}


def issue(key: ApiKey) -> str:
    """Give a new row its prefix and secret (not saved yet); return the key to be shown once."""
    key.prefix = secrets.token_hex(4)
    return _renew(key)


def rotate(key: ApiKey) -> str:
    """Give a saved row a new secret; the old one works until OVERLAP has passed."""
    key.previous_hash, key.previous_until = key.secret_hash, timezone.now() + OVERLAP
    text = _renew(key)
    key.save(update_fields=["secret_hash", "previous_hash", "previous_until"])
    return text


def find(text: str) -> ApiKey | None:
    """The valid key row of this text."""
    mark, _, rest = text.partition("_")
    prefix, _, secret = rest.partition("_")
    if mark != MARK or not secret or len(text) > 100 or not prefix.isalnum():
        return None
    now = timezone.now()
    key = ApiKey.objects.filter(prefix=prefix, is_active=True, expires_at__gt=now).first()
    given = digest(secret)
    if key is None:
        return None
    is_old = key.previous_until is not None and key.previous_until > now
    known = [key.secret_hash, *([key.previous_hash] if is_old else [])]
    return key if sum(hmac.compare_digest(given, each) for each in known) else None


def _renew(key: ApiKey) -> str:
    secret = secrets.token_urlsafe(32)
    key.secret_hash = digest(secret)
    return f"{MARK}_{key.prefix}_{secret}"


def _note_use(key: ApiKey, request: HttpRequest) -> None:
    now = timezone.now()
    if key.last_used_at is None or now - key.last_used_at >= _NOTED_EVERY:
        ApiKey.objects.filter(pk=key.pk).update(
            last_used_at=now, last_used_from=address_of(request)[:64]
        )
