"""`GET /api/v1/status`: how the node is, for programs."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from .key_figures import node_status


class MaySeeStatus(BasePermission):
    """For whom the console would show the same."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the user, or the key, may see the state of the components in the console."""
        return bool(request.user.has_perm("msgnode.view_componentstatus"))


class StatusView(APIView):
    """`GET /api/v1/status`. Its `workers` is empty when no worker has been heard of."""

    schema = None  # described in docs/operations.md; the OpenAPI document is the registry's
    renderer_classes = (JSONRenderer,)
    permission_classes = (MaySeeStatus,)

    def get(self, request: Request) -> Response:
        """The state of the node as `manage.py node_status --json` writes it."""
        return Response(node_status())
