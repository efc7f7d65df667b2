"""The playground of runtimes: sessions opened in the browser, messages made from the schemas.

What is sent goes over the node's own socket, as from any runtime; the page has no rights of its own
there. How a message was decided and routed is told by the traces of its session, which ask for the
right to see sessions.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.decorators import staff_member_required
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.decorators import method_decorator

from .live.access import SEES

Document = dict[str, Any]


def composed(document: Document) -> list[Document]:
    """What a runtime may say over its socket, in the order of the AsyncAPI document.

    Returns:
        of each message its name, title, purpose, an example and its schema without references.
    """
    messages = document["components"]["messages"]
    said: dict[str, Document] = {}
    for operation in document["operations"].values():
        if operation["action"] != "receive":
            continue
        for each in operation["messages"]:
            name = str(each["$ref"]).rpartition("/")[2]
            message = messages[name]
            said[name] = {
                "name": name,
                "title": message["title"],
                "summary": operation["summary"],
                "example": message["examples"][0]["payload"],
                "schema": _resolved(message["payload"], document),
            }
    return list(said.values())


def _resolved(schema: Any, document: Document) -> Any:
    """A schema with its references resolved in place."""
    if isinstance(schema, list):
        return [_resolved(each, document) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found: Any = document
        for name in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = found[name]
        return _resolved(found, document)
    return {key: _resolved(value, document) for key, value in schema.items()}


class RuntimesPage:
    """`/admin/runtimes/`.

    Args:
        described: the AsyncAPI document of this node, which is of a layer above.
    """

    def __init__(self, described: Any) -> None:
        self._described = described

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Serve the page."""
        return staff_member_required(self._page)(request)

    @method_decorator(permission_required(SEES, raise_exception=True))
    def _page(self, request: HttpRequest) -> HttpResponse:
        facts = {
            "domain": settings.DOMAIN,
            "messages": composed(self._described()),
            "traces": f"{reverse('admin:index')}live/traces/",
            "problems": reverse("problems"),
            "session": reverse("admin:msgnode_session_changelist"),
        }
        context = {
            **admin.site.each_context(request),
            "title": "Playground of runtimes",
            "facts": facts,
            "may_try": request.user.has_perm("policies.view_policyset"),
        }
        return TemplateResponse(request, "console/runtimes.html", context)
