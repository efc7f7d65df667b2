"""REST interface of visitors: of which domains there are any, and the end of those of one.

Reading needs the permission to see sessions, ending them that to change sessions, as in the
console. Who is to stay away is banned there: *Bans*, of a domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Q
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from msgnode.models import Session

from .operator_actions import end_sessions
from .peers_api import MayDoTheSameInTheConsole, Pages


class MayEndSessions(MayDoTheSameInTheConsole):
    """Who may end sessions may end those of a domain's visitors; no row is deleted."""

    rights: Mapping[str, str] = {**MayDoTheSameInTheConsole.rights, "destroy": "change"}


class VisitorsLine(serializers.Serializer):
    """Visitors of one domain."""

    domain = serializers.CharField(source="visits_from")
    sessions = serializers.IntegerField(help_text="That have not ended, at all workers.")
    connected = serializers.IntegerField(help_text="Of these, those that have a socket.")
    addresses = serializers.IntegerField(help_text="Addresses that they hold.")


class Ended(serializers.Serializer):
    """What was done."""

    ended = serializers.IntegerField()


class VisitorViews(
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet,
):
    """Runtimes of other domains that have come here themselves, by their domain."""

    permission_classes = (MayEndSessions,)
    pagination_class = Pages
    serializer_class = VisitorsLine
    lookup_field = "visits_from"
    lookup_url_kwarg = "domain"
    lookup_value_regex = "[^/]+"
    queryset = (
        Session.objects.exclude(visits_from="")
        .exclude(state=Session.State.CLOSED)
        .order_by("visits_from")
        .values("visits_from")
        .annotate(
            sessions=Count("pk", distinct=True),
            connected=Count("pk", distinct=True, filter=Q(state=Session.State.OPEN)),
            addresses=Count("allocations"),
        )
    )

    @extend_schema(responses={200: Ended, 404: OpenApiTypes.OBJECT})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """End the sessions of a domain's visitors; they may come back if the domain is not banned.

        Their runtimes are told not to return by themselves.
        """
        domain = self.get_object()["visits_from"]
        live = Session.objects.filter(visits_from=domain).exclude(state=Session.State.CLOSED)
        by = request.user.get_username()
        ended = end_sessions(live, by, f"visitors of {domain} were ended", may_return=False)
        return Response({"ended": ended}, status=status.HTTP_200_OK)
