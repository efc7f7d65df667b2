"""REST interface of the peers: list them, add one, decide about one and what waits for it.

What a person may do in the console a caller may do here: reading needs the permission to view,
adding and removing those to add and to delete, everything else the permission to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.pagination import PageNumberPagination
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from msgnode.core.errors import Unavailable
from msgnode.federation import kinds, monitoring, store
from msgnode.models import Peer, PeerMessage, PeerStub

from . import peer_actions, whereabouts

_FOUND = PeerStub.objects.filter(peer=OuterRef("pk"), digest=OuterRef("found_digest"))
_APPROVED = PeerStub.objects.filter(peer=OuterRef("pk"), digest=OuterRef("approved_digest"))
MOST = 500
"""Messages that one order names."""
NAMED = 10
"""Fields that an answer names as wrong, at most."""


class KnownFields(serializers.Serializer):
    """A body all of whose fields can be set here.

    A field that is not would be passed over in silence: `decision` would decide nothing, and a
    slip in the name of `messages` would discard all that waits.
    """

    def to_internal_value(self, data: Any) -> Any:
        """The values, if each name is that of a field that can be set."""
        can = {name for name, field in self.fields.items() if not field.read_only}
        if isinstance(data, Mapping) and (others := sorted(set(data) - can)):
            words = f"It cannot be set here. Fields that can be set: {', '.join(sorted(can))}."
            raise serializers.ValidationError({name: [words] for name in others[:NAMED]})
        return super().to_internal_value(data)


def checked(shape: type[serializers.Serializer], data: Any) -> dict[str, Any]:
    """What a request says, as the shape has it. Raises ValidationError."""
    asked = shape(data=data)
    asked.is_valid(raise_exception=True)
    return dict(asked.validated_data)


class Pages(PageNumberPagination):
    """Pages of a list."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200


class MayDoTheSameInTheConsole(BasePermission):
    """Who has the permission that the console asks for."""

    rights: Mapping[str, str] = {
        "list": "view", "retrieve": "view", "queue": "view", "where": "view", "stubs": "view",
        "versions": "view", "create": "add", "destroy": "delete",
    }  # fmt: skip
    """By the action of the view; any other takes the right to change."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the user, or the key, has the right on such rows that the console asks for."""
        right = self.rights.get(view.action, "change")
        model = view.queryset.model._meta.model_name
        return bool(request.user.has_perm(f"msgnode.{right}_{model}"))


class PeerLine(KnownFields, serializers.ModelSerializer):
    """A peer: what was decided, and how it is."""

    subscriptions = serializers.IntegerField(
        source="subscribed",
        read_only=True,
        default=0,
        help_text="Addresses that this node has subscribed there.",
    )

    figures = serializers.SerializerMethodField(
        help_text="Of the last ten seconds: messages a second to and from it, what waits, what the "
        "sandbox uses; `out` and `in`: when something has passed last (`passed_at`, seconds of "
        "UTC), and what was refused, and when (`error`, `failed_at`). Empty if no worker has told "
        "for half a minute."
    )

    class Meta:
        model = Peer
        fields = (
            "domain", "url", "hosts", "keys", "kind", "seems", "visitors",
            "messages_per_second", "vouches",
            "decision", "state", "state_at", "last_error",
            "found_digest", "signed_by", "looked_at", "discovery", "approved_digest",
            "approved_by", "approved_at", "subscriptions", "figures",
        )  # fmt: skip
        read_only_fields = tuple(name for name in fields if name not in peer_actions.SETTABLE)

    seems = serializers.SerializerMethodField(
        help_text="The kind that counts: `kind`, or if that is empty what the stub seems to be of."
    )

    signed_by = serializers.CharField(
        source="signer",
        read_only=True,
        default="",
        help_text="Id of the key that has signed the stub that was found; empty without `keys`.",
    )

    def get_seems(self, peer: Peer) -> str:
        """The kind of node that counts for the peer."""
        return peer.kind or getattr(peer, "stub_kind", "") or kinds.UNKNOWN

    def get_figures(self, peer: Peer) -> dict[str, Any]:
        """What has passed to and from the peer, and what waits for it."""
        return store.figures_of(peer)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse what cannot be a peer, as the console does, or would rename one."""
        attrs = peer_actions.cleaned(attrs)
        domain, peer = attrs.get("domain", ""), self.instance
        if peer is not None and domain not in ("", peer.domain):
            words = "A peer keeps its domain: remove it, and add another."
            raise serializers.ValidationError({"domain": words})
        if peer is None and Peer.objects.filter(domain=domain).exists():
            raise serializers.ValidationError({"domain": f"There is a peer {domain} already."})
        return attrs


class Approval(KnownFields):
    """Which stub is approved."""

    digest = serializers.CharField(
        required=False,
        default="",
        max_length=64,
        help_text="Of the stub, or how it begins: the one that was found, or an earlier one, to go "
        "back to it. Without, the one that was found.",
    )


class StubLine(serializers.Serializer):
    """A stub that the domain has offered."""

    digest = serializers.CharField()
    version = serializers.CharField()
    signed_by = serializers.CharField(help_text="Id of the key; empty without `keys`.")
    found_at = serializers.DateTimeField()


class MessageLine(serializers.ModelSerializer):
    """A message that waits for a peer."""

    class Meta:
        model = PeerMessage
        fields = ("id", "kind", "type", "sender", "to", "size", "since", "until", "text")
        read_only_fields = fields


class Sought(serializers.Serializer):
    """Which message."""

    id = serializers.CharField(max_length=200, help_text="As its sender has written it.")


class Place(serializers.Serializer):
    """Where a message is. `passed`: the traffic record has it, or its response."""

    stage = serializers.ChoiceField(choices=whereabouts.STAGES)
    at = serializers.DateTimeField()
    type = serializers.CharField()
    sender = serializers.CharField()
    to = serializers.CharField()
    text = serializers.CharField()


class Order(KnownFields):
    """Which of the messages that wait."""

    messages = serializers.ListField(
        child=serializers.IntegerField(min_value=1), allow_empty=False, max_length=MOST,
        help_text="Their ids.",
    )  # fmt: skip


class Discard(Order):
    """Which of the messages that wait, or all."""

    messages = serializers.ListField(
        child=serializers.IntegerField(min_value=1), allow_empty=False, max_length=MOST,
        required=False, help_text="Their ids; without it, all that waits.",
    )  # fmt: skip


class Ordered(serializers.Serializer):
    """What was ordered. It is done within a second; what has left by then is not touched."""

    messages = serializers.ListField(child=serializers.IntegerField())
    left = serializers.ListField(
        child=serializers.IntegerField(), help_text="Those that did not wait any more."
    )


def order(
    name: str,
    line: type[serializers.Serializer],
    said: str,
    *,
    shape: type[serializers.Serializer] | None = None,
    may_be_refused: bool = True,
) -> Any:
    """An order about one row, at `<row>/<name>/`, which is answered with the row.

    Args:
        name: one of the ACTIONS of the view's `decisions`.
        line: the shape of a row.
        said: what it does, for the OpenAPI document.
        shape: the shape of the body, None if it has none.
        may_be_refused: whether there may be an obstacle (409).
    """

    def run(self: DecidedViews, request: Request, **_row: str) -> Response:
        return self.act(name, **(checked(shape, request.data) if shape else {}))

    run.__name__, run.__doc__ = name, said
    refused = {409: OpenApiTypes.OBJECT} if may_be_refused else {}
    described = extend_schema(request=shape, responses={200: line, **refused})
    return described(action(detail=True, methods=["post"])(run))


class DecidedViews(
    mixins.DestroyModelMixin,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    viewsets.GenericViewSet,
):
    """Rows of which a version is approved. `decisions` is the module that does what is decided."""

    permission_classes = (MayDoTheSameInTheConsole,)
    pagination_class = Pages
    decisions: Any

    @property
    def by(self) -> str:
        """Who asks."""
        return str(self.request.user.get_username())

    def perform_destroy(self, instance: Any) -> None:
        """Remove a row."""
        self.decisions.act("remove", instance, self.by)

    def act(self, name: str, digest: str = "") -> Response:
        """Do what is ordered; the answer is the row as it is then."""
        self.decisions.act(name, self.get_object(), self.by, digest)
        return Response(self.get_serializer(self.get_object()).data)


class PeerViews(mixins.CreateModelMixin, mixins.UpdateModelMixin, DecidedViews):
    """The nodes of other domains."""

    decisions = peer_actions
    serializer_class = PeerLine
    queryset: QuerySet[Any] = Peer.objects.annotate(
        subscribed=Count("subscriptions"),
        signer=Coalesce(Subquery(_FOUND.values("signed_by")[:1]), Value("")),
        stub_kind=Coalesce(
            Subquery(_APPROVED.values("kind")[:1]), Subquery(_FOUND.values("kind")[:1]), Value("")
        ),
    ).order_by("domain")
    lookup_field = "domain"
    lookup_value_regex = "[^/]+"
    http_method_names = ("get", "post", "patch", "delete", "head", "options")

    def perform_create(self, serializer: Any) -> None:
        """Add a peer."""
        serializer.instance = peer_actions.save(Peer(), serializer.validated_data)

    def perform_update(self, serializer: Any) -> None:
        """Change a peer; its stub is looked for at once, where it may be now."""
        peer_actions.save(serializer.instance, serializer.validated_data)
        serializer.instance = self.get_object()

    approve = order(
        "approve", PeerLine, shape=Approval,
        said="The stub that was found may run, or an earlier one again, and messages pass.",
    )  # fmt: skip
    pause = order("pause", PeerLine, "Nothing passes for now: 503.", may_be_refused=False)
    resume = order("resume", PeerLine, "Messages pass again, through the stub that was approved.")
    block = order("block", PeerLine, "Nothing passes: 403.", may_be_refused=False)
    restart = order("restart", PeerLine, "Its stub begins anew, without waiting.")
    look = order("look", PeerLine, "Its stub is looked for again.", may_be_refused=False)

    @extend_schema(responses={200: StubLine(many=True)}, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def stubs(self, request: Request, domain: str) -> Response:
        """The stubs that the domain has offered, the newest first, 50 at most."""
        return Response(StubLine(store.stubs_of(self.get_object()), many=True).data)

    @extend_schema(responses={200: MessageLine(many=True)})
    @action(detail=True, methods=["get"])
    def queue(self, request: Request, domain: str) -> Response:
        """What has waited for a second or longer, the first 500: the oldest first."""
        rows = monitoring.waiting().filter(peer=self.get_object()).order_by("id")
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(MessageLine(page, many=True).data)

    @extend_schema(parameters=[Sought], responses={200: Place(many=True)}, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def where(self, request: Request, domain: str) -> Response:
        """Where a message to or from the peer is, by its id, or what became of it."""
        sought = checked(Sought, request.query_params)["id"]
        try:
            found = whereabouts.where(self.get_object(), sought)
        except OSError as error:
            raise Unavailable(f"The traffic record cannot be read: {error}") from error
        return Response(Place(found, many=True).data)

    @extend_schema(request=Order, responses={202: Ordered})
    @action(detail=True, methods=["post"], url_path="queue/retry")
    def retry(self, request: Request, domain: str) -> Response:
        """The peer is tried at once, and these messages have their whole time again."""
        return self._order(monitoring.RETRY, checked(Order, request.data)["messages"])

    @extend_schema(request=Discard, responses={202: Ordered})
    @action(detail=True, methods=["post"], url_path="queue/discard")
    def discard(self, request: Request, domain: str) -> Response:
        """These messages wait no longer, or all: who sent a request is answered 503."""
        asked = checked(Discard, request.data)
        if "messages" not in asked:
            self.act("discard")
            return Response({"messages": [], "left": []}, status=status.HTTP_202_ACCEPTED)
        return self._order(monitoring.DISCARD, asked["messages"])

    def _order(self, kind: str, messages: list[int]) -> Response:
        done, left = peer_actions.order_of(kind, self.get_object(), messages, self.by)
        return Response({"messages": done, "left": left}, status=status.HTTP_202_ACCEPTED)
