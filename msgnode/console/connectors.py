"""Connectors that are scripts, in the console and over REST: given, tried, approved, watched.

The value of a secret can be given, and is never shown. The workbench runs a script against recorded
requests (msgnode/scripts/trial.py), before it is approved, or before it is given at all.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from msgnode.core.errors import Conflict, NodeError
from msgnode.models import Connector, ConnectorScript
from msgnode.sandbox.process import SandboxLimits
from msgnode.scripts import store, trial

from . import connector_actions
from .confirm import ask, is_confirmed
from .decided import DecidedAdmin, for_each
from .peers_api import Approval, DecidedViews, KnownFields, checked, order


def _area(rows: int) -> UnfoldAdminTextareaWidget:
    """A field for text of so many rows."""
    return UnfoldAdminTextareaWidget(attrs={"rows": rows, "spellcheck": "false"})


PARTS = ("source", "configuration", "origins", "secrets")


def try_out(port: str, values: dict[str, Any], calls: Any, answers: Any) -> dict[str, Any]:
    """Try a script in the workbench.

    Raises:
        ValidationError: with a sentence for each value that is wrong.
        NodeError: it cannot be tried now.
    """
    if not isinstance(calls, list) or not all(isinstance(each, dict) for each in calls):
        raise ValidationError({"calls": "It must be a list of objects with method and argument."})
    if not isinstance(answers, dict):
        raise ValidationError({"answers": 'It must be an object: {"GET https://…": …}.'})
    sandbox = settings.SANDBOX
    limits = SandboxLimits(
        silence=sandbox["SILENCE_SECONDS"],
        max_frame=int(settings.NODE["MAX_FRAME_BYTES"]),
        wraps=sandbox["BUBBLEWRAP"],
    )
    return trial.run(port, store.checked(values, port), calls, answers, limits)


def parts_of(connector: Connector) -> dict[str, Any]:
    """The parts of the newest version of its script."""
    found = connector.scripts.filter(digest=connector.found_digest)
    return dict(found.values(*PARTS).first() or {})


class ConnectorForm(forms.ModelForm):
    """A version of a connector's script."""

    source = forms.CharField(label="Script", widget=_area(16))
    configuration = forms.JSONField(required=False, initial=dict, widget=_area(4))
    origins = forms.CharField(
        required=False, widget=_area(2),
        help_text="Where it may send requests, such as https://api.example.org; one a line.",
    )  # fmt: skip
    secrets = forms.JSONField(
        required=False, initial=dict, widget=_area(3),
        help_text='The origin for which each is: {"api-key": "https://api.example.org"}. '
        "* in place of it lets the script read the value.",
    )  # fmt: skip
    secret_name = forms.CharField(
        required=False, max_length=64, label="Secret with a new value",
        widget=UnfoldAdminTextInputWidget,
    )  # fmt: skip
    secret_value = forms.CharField(
        required=False, max_length=store.MAX_VALUE, help_text="Stored encrypted, and not shown.",
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
    )  # fmt: skip

    class Meta:
        model = Connector
        fields = ("port",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            parts = parts_of(self.instance)
            self.initial.update({**parts, "origins": "\n".join(parts.get("origins", ()))})

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        values = {name: cleaned.get(name) or {} for name in PARTS}
        values["origins"] = (cleaned.get("origins") or "").split()
        self.parts = values
        store.checked(values, cleaned.get("port") or self.instance.port)
        return cleaned


class _Indented(json.JSONEncoder):
    """JSON for a person to read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "indent": 2})


class Workbench(forms.Form):
    """What a script is tried with."""

    source = forms.CharField(label="Script", widget=_area(16))
    calls = forms.JSONField(label="Calls", widget=_area(8), encoder=_Indented)
    answers = forms.JSONField(
        label="Recorded answers", required=False, widget=_area(6), encoder=_Indented,
        help_text='By method and URL: {"GET https://api.example.org/users": {"status": 200, '
        '"body": []}}. Nothing is sent.',
    )  # fmt: skip
    result = forms.JSONField(
        label="Result", required=False, disabled=True, widget=_area(16), encoder=_Indented
    )


@admin.register(Connector)
class ConnectorAdmin(DecidedAdmin):
    decisions = connector_actions
    form = ConnectorForm
    list_display = ("port", "what_was_decided", "state", "lately", "sandbox", "error_in_short")
    search_fields = ("port",)
    ordering = ("port",)
    fields: ClassVar[tuple[str, ...]] = (
        "port", "what_was_decided", "state", "state_at", "last_error", "lately", "sandbox",
        "refused", "said", *PARTS, "secret_name", "secret_value",
        "found_digest", "approved_digest", "approved_by", "approved_at", "versions",
    )  # fmt: skip
    acts_on: ClassVar[tuple[str, ...]] = ("decision", "found_digest", "approved_digest")
    actions: ClassVar[tuple[str, ...]] = (
        "approve", "go_back", "try_it", "pause", "resume", "restart",
    )  # fmt: skip

    given: ClassVar[tuple[str, ...]] = (*PARTS, "secret_name", "secret_value")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.fields if obj is not None else ("port", *self.given)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return tuple(each for each in self.fields if each not in self.given) if obj else ()

    @admin.display(description="calls")
    def lately(self, row: Connector) -> str:
        """Calls a second, codes, and how long one took."""
        told = row.figures or {}
        codes = ", ".join(f"{code}: {number}" for code, number in told.get("codes", {}).items())
        rate, took = told.get("calls_per_second", 0), told.get("median_ms", 0)
        return f"{rate}/s, {took} ms ({codes})" if codes else ""

    @admin.display(description="its sandbox")
    def sandbox(self, row: Connector) -> str:
        told = row.figures or {}
        if not told:
            return ""
        size = filesizeformat(told.get("sandbox_bytes", 0))
        return f"{size}, ended {told.get('restarts', 0)} times"

    @admin.display(description="requests that were refused")
    def refused(self, row: Connector) -> str:
        told = row.figures or {}
        return "; ".join((str(told.get("requests_refused", 0)), *told.get("refusals", ())))

    @admin.display(description="what it has logged")
    def said(self, row: Connector) -> str:
        return "; ".join((row.figures or {}).get("log", ()))

    @admin.display(description="versions")
    def versions(self, row: Connector) -> str:
        found = row.scripts.values_list("digest", "found_at", "added_by")
        return "; ".join(f"{digest[:12]} {at:%Y-%m-%d %H:%M} {by}" for digest, at, by in found)

    def save_model(self, request: HttpRequest, obj: Connector, form: Any, change: bool) -> None:
        """Add a version, unless it is the newest already; and set a secret."""
        by = request.user.get_username()
        values = store.checked(form.parts, obj.port)
        if not change or store.digest_of(values) != obj.found_digest:
            obj.pk = connector_actions.add(obj.port, values, by).pk
            messages.info(request, "The script waits for approval: an action of the list.")
        if name := form.cleaned_data.get("secret_name"):
            value = form.cleaned_data.get("secret_value") or ""
            try:
                row = Connector.objects.get(pk=obj.pk)
                messages.success(request, connector_actions.set_secret(row, name, value, by))
            except Conflict as why:
                messages.error(request, str(why))

    def delete_model(self, request: HttpRequest, obj: Connector) -> None:
        self.act(request, "remove", obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Connector]) -> None:
        for row in queryset:
            self.act(request, "remove", row)

    approve = for_each("approve", "Approve the newest script")
    pause = for_each("pause", "Pause")
    resume = for_each("resume", "Resume with the approved script")
    restart = for_each("restart", "Restart the script")

    @admin.action(description="Go back to an earlier script", permissions=["change"])
    def go_back(self, request: HttpRequest, rows: QuerySet[Connector]) -> HttpResponse | None:
        if len(rows) != 1:
            messages.error(request, "Select one connector only: each has scripts of its own.")
            return None
        scripts = rows[0].scripts.values_list("digest", "found_at", "added_by")
        found = [(key, f"{key[:12]}, {at:%Y-%m-%d %H:%M}, {by}") for key, at, by in scripts]
        return self.let_another_run(request, rows, "script", "Version", found)

    @admin.action(description="Try a script in the workbench", permissions=["change"])
    def try_it(self, request: HttpRequest, rows: QuerySet[Connector]) -> HttpResponse | None:
        if len(rows) != 1:
            messages.error(request, "Select one connector only.")
            return None
        row, parts = rows[0], parts_of(rows[0])
        recorded = (row.figures or {}).get("recorded") or trial.EXAMPLES[row.port]
        given: dict[str, Any] = {"source": parts["source"], "calls": recorded, "answers": {}}
        form = Workbench(initial=given)
        if is_confirmed(request):
            form = Workbench(request.POST)
            if form.is_valid():
                said = form.cleaned_data
                values = {**parts, "source": said["source"]}
                try:
                    told = try_out(row.port, values, said["calls"], said["answers"] or {})
                except ValidationError as wrong:
                    told = {"fault": wrong.message_dict}
                except NodeError as why:
                    told = {"fault": str(why)}
                given = {name: said[name] for name in ("source", "calls", "answers")}
                form = Workbench(initial={**given, "result": told})
        return ask(
            self, request, rows, action="try_it", title="Workbench", button="Run",
            warning="The script runs in a sandbox of its own. Nothing is sent, stored or approved.",
            form=form,
        )  # fmt: skip


# --- REST -----------------------------------------------------------------------------------------


class ConnectorLine(serializers.ModelSerializer):
    """A connector that is a script: what was decided, and how it is."""

    class Meta:
        model = Connector
        fields = (
            "port", "decision", "state", "state_at", "last_error", "found_digest",
            "approved_digest", "approved_by", "approved_at", "figures",
        )  # fmt: skip
        read_only_fields = fields


class Given(KnownFields):
    """A version of a connector's script."""

    port = serializers.ChoiceField(choices=Connector.Port.choices)
    source = serializers.CharField(trim_whitespace=False)
    configuration = serializers.DictField(required=False, default=dict)
    origins = serializers.ListField(child=serializers.CharField(), required=False, default=list)
    secrets = serializers.DictField(
        child=serializers.CharField(), required=False, default=dict,
        help_text="The origin for which each is, by its name; * lets the script read it.",
    )  # fmt: skip


class Tried(Given):
    """What a script is tried with; without `source` and the rest, the newest of the connector."""

    port = None
    source = serializers.CharField(required=False, trim_whitespace=False)
    calls = serializers.ListField(child=serializers.DictField(), required=False, max_length=20)
    answers = serializers.DictField(required=False, default=dict)


class SecretValue(KnownFields):
    """The value of a secret."""

    name = serializers.CharField(max_length=64)
    value = serializers.CharField(max_length=store.MAX_VALUE, write_only=True)


class VersionLine(serializers.ModelSerializer):
    """A version of a connector's script."""

    class Meta:
        model = ConnectorScript
        fields = ("digest", "found_at", "added_by", *PARTS)
        read_only_fields = fields


class ConnectorViews(DecidedViews):
    """Connectors that are scripts."""

    decisions = connector_actions
    serializer_class = ConnectorLine
    queryset = Connector.objects.order_by("port")
    lookup_field = "port"

    @extend_schema(request=Given, responses={201: ConnectorLine})
    def create(self, request: Request) -> Response:
        """Add a version of a connector's script, which waits for approval."""
        values = checked(Given, request.data)
        row = connector_actions.add(values.pop("port"), values, self.by)
        return Response(ConnectorLine(row).data, status=201)

    approve = order(
        "approve", ConnectorLine, "The newest script may run, or an earlier one again.",
        shape=Approval,
    )  # fmt: skip
    pause = order("pause", ConnectorLine, "Requests are answered 503.", may_be_refused=False)
    resume = order("resume", ConnectorLine, "The approved script answers again.")
    restart = order("restart", ConnectorLine, "The script begins anew.")

    @extend_schema(responses={200: VersionLine(many=True)}, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def versions(self, request: Request, port: str) -> Response:
        """Its versions, the newest first, 50 at most."""
        return Response(VersionLine(self.get_object().scripts.all(), many=True).data)

    @extend_schema(request=SecretValue, responses={204: None, 409: OpenApiTypes.OBJECT})
    @action(detail=True, methods=["post"])
    def secret(self, request: Request, port: str) -> Response:
        """Set the value of a secret."""
        asked = checked(SecretValue, request.data)
        connector_actions.set_secret(self.get_object(), **asked, actor=self.by)
        return Response(status=204)

    @extend_schema(request=Tried, responses={200: OpenApiTypes.OBJECT})
    @action(detail=True, methods=["post"], url_path="try")
    def try_it(self, request: Request, port: str) -> Response:
        """Try a script against recorded requests, in a sandbox of its own; nothing is sent."""
        said = checked(Tried, request.data)
        values = parts_of(self.get_object())
        values |= {name: said[name] for name in PARTS if name in request.data}
        calls = said.get("calls", trial.EXAMPLES[port])
        return Response(try_out(port, values, calls, said["answers"]))
