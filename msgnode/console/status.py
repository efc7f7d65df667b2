"""How the node is, in one document: for `manage.py node_status` and `/api/v1/status`."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgnode.models import Alarm, Allocation, Ban, PoolAddress, Subscription

from . import key_figures
from .admission_summary import admission_summary

ALARMS_TOLD = 50


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


def node_status() -> dict[str, Any]:
    """How the node is: sessions, components, workers, alarms."""
    now = timezone.now()
    components = key_figures.components(now)
    in_force = Ban.objects.exclude(expires_at__lte=now)
    alarms = Alarm.objects.filter(cleared_at=None)
    return {
        "at": now,
        "workers": sorted({worker for line in components for worker in line["workers"]}),
        "joined": key_figures.links(now),
        "admission": admission_summary(),
        "sessions": key_figures.live_sessions(),
        "allocations": Allocation.objects.count(),
        "subscriptions": Subscription.objects.count(),
        "pool_addresses": PoolAddress.objects.count(),
        "bans": in_force.count(),
        "components": components,
        "alarms": list(
            alarms.values("kind", "subject", "text", "count", "raised_at", "last_at")[:ALARMS_TOLD]
        ),
    }
