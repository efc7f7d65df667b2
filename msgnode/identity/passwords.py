"""Passwords over HTTP (Basic): for accounts that use /api/v1 and the registries without a browser.

Wrong ones count as tries of the address to log in (provider/login.py). For an address that has had
too many within a minute none is looked at: that takes a good part of a second of a processor. An
account that needs a second factor, or logs in at an issuer, is not let in so.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.authentication import BasicScheme
from rest_framework.authentication import BasicAuthentication
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.request import Request

from msgnode.core.http_limits import HTTP_LIMITS, WINDOW
from msgnode.identity import second_factor
from msgnode.models import OperatorIdentity
from msgnode.web.proxies import source_of_request


class PasswordAuthentication(BasicAuthentication):
    """Authenticates a request with a name and a password."""

    def authenticate_credentials(self, userid: str, password: str, request: Request) -> Any:
        """The account. Raises AuthenticationFailed, and Throttled."""
        tries = ("login", source_of_request(request._request), settings.LOGINS_PER_MINUTE)
        if HTTP_LIMITS.is_spent(*tries):
            raise Throttled(wait=WINDOW)
        try:
            found = super().authenticate_credentials(userid, password, request)
        except AuthenticationFailed:
            HTTP_LIMITS.take(*tries)
            raise
        is_elsewhere = OperatorIdentity.objects.filter(user=found[0]).exists()
        if is_elsewhere or second_factor.is_asked(found[0]):
            raise AuthenticationFailed(
                "A password alone does not let this account in. Use an API key."
            )
        return found


class PasswordScheme(BasicScheme):
    """The name of this authentication in the OpenAPI document."""

    target_class = "msgnode.identity.passwords.PasswordAuthentication"
