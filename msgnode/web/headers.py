"""Security headers of every HTML page: a policy for what it may load, and what it may not ask for.

Everything comes from this node and nothing is inline. Exceptions, each with its reason:
  /admin/    the console's theme evaluates expressions in attributes (Alpine: 'unsafe-eval') and has
             style attributes ('unsafe-inline' for styles only). Its log-in page has neither.
  /api/docs  Swagger UI writes style attributes; its scripts are files of this node.
The page of a sandbox is the opposite of all others: any page may frame it, it runs code from
elsewhere, and therefore it never has this node's origin, framed or not.
"""

from __future__ import annotations

from csp.constants import SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.middleware import CSPMiddleware, PolicyParts
from django.http import HttpRequest
from django.http.response import HttpResponseBase

_PERMISSIONS = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
_SANDBOX_PAGE = "/static/msgnode/runtime/sandbox/frame.html"
_SANDBOX_HEADERS = {
    "Content-Security-Policy": "sandbox allow-scripts",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Origin-Agent-Cluster": "?1",
}
_STRICT_BELOW_ADMIN = ("/admin/login/", "/admin/logout/")


class HeadersMiddleware(CSPMiddleware):
    """django-csp with our exceptions, and the headers it does not know."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        """The Content-Security-Policy, with the exceptions of the path."""
        parts = super().get_policy_parts(request, response, report_only)
        if not report_only:
            exceptions = _exceptions(request)
            parts.replace = {**exceptions, **(parts.replace or {})}
        return parts

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Set what a response does not set itself."""
        response.setdefault("Permissions-Policy", _PERMISSIONS)
        if request.path_info == _SANDBOX_PAGE:
            for name, value in _SANDBOX_HEADERS.items():
                response[name] = value
            return response
        return super().process_response(request, response)


def _exceptions(request: HttpRequest) -> dict[str, list[str]]:
    path = request.path_info
    if path.startswith("/admin/") and not path.startswith(_STRICT_BELOW_ADMIN):
        return {"script-src": [SELF, UNSAFE_EVAL], "style-src": [SELF, UNSAFE_INLINE]}
    if path.startswith("/api/docs"):
        return {"style-src": [SELF, UNSAFE_INLINE]}
    return {}
