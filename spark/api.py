"""The REST interface of the reports: read and download them, request and cancel runs.

Reading needs the permission to view, requesting and cancelling the permission to add a run.
"""

from __future__ import annotations

import csv
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.contrib.auth.models import User
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.permissions import DjangoModelPermissions
from rest_framework.request import Request
from rest_framework.response import Response

from msgnode.console.peers_api import Pages
from msgnode.core.errors import Conflict
from spark import pages, report_runs
from spark.enqueue import enqueue
from spark.models import KindChoice, Report, ReportRun

CSV, PARQUET = "csv", "parquet"
MEDIA_TYPES = {CSV: "text/csv; charset=utf-8", PARQUET: "application/vnd.apache.parquet"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 (as wide as Chinese)


def content(rows: list[dict[str, Any]], form: str, there_were: int = 0) -> bytes:
    """The rows as a file. Parquet says in its metadata how many there were to choose from."""
    return _csv(rows) if form == CSV else _parquet(rows, max(there_were, len(rows)))


def name_of(report: str, table: str, kept: int, there_were: int, form: str) -> str:
    """The file's name: `daily-…-talkers-top-100-of-4211.csv` where not all rows were kept."""
    cut = f"-top-{kept}-of-{there_were}" if there_were > kept else ""
    return f"{report}-{table}{cut}.{form}"


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(
        text,
        fieldnames=list(rows[0]) if rows else [],
        lineterminator="\r\n",
        quoting=csv.QUOTE_NONNUMERIC,  # where a semicolon ends a cell, none of a text does
    )
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula, so that it does not: senders choose it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _parquet(rows: list[dict[str, Any]], there_were: int) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.replace_schema_metadata({"rows_there_were": str(there_were)}), sink)
    return sink.getvalue()


class MayViewOrAdd(DjangoModelPermissions):
    """Who may view the rows may read, who may add runs may ask for one."""

    perms_map = {  # noqa: RUF012
        **DjangoModelPermissions.perms_map,
        "GET": ["%(app_label)s.view_%(model_name)s"],
    }


class ReportLine(serializers.ModelSerializer):
    """A report in a list."""

    class Meta:
        model = Report
        fields: tuple[str, ...] = (
            "id",
            "kind",
            "start",
            "end",
            "made_at",
            "rows",
            "hours_recorded",
            "hours_of_period",
            "hours_incomplete",
        )


class ReportWhole(ReportLine):
    """A report with all its figures."""

    class Meta(ReportLine.Meta):
        fields = (*ReportLine.Meta.fields, "figures")


class RunLine(serializers.ModelSerializer):
    """A run with its state and progress."""

    kind = serializers.ChoiceField(KindChoice.choices)
    end = serializers.DateTimeField(required=False)

    class Meta:
        model = ReportRun
        validators = ()  # asking twice for the same is no fault: `runs.queue` sees to it
        fields = (
            "id", "kind", "start", "end", "again", "state", "trigger", "queued_at", "started_at",
            "ended_at", "attempts", "progress", "step", "error", "warning", "rows_read",
            "hours_rolled", "peak_memory_mb",
        )  # fmt: skip
        read_only_fields = tuple(
            name for name in fields if name not in ("kind", "start", "end", "again")
        )

    def validate(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Refuse a period that ends before it begins, or is too long."""
        try:
            report_runs.check_period(asked["start"], asked.get("end"))
        except report_runs.NoSuchPeriod as fault:
            raise serializers.ValidationError(str(fault)) from fault
        return asked


@extend_schema_view(
    list=extend_schema(parameters=[OpenApiParameter("kind", str, enum=KindChoice.values)])
)
class ReportViews(viewsets.ReadOnlyModelViewSet):
    """Reports, and their tables as files."""

    permission_classes = (MayViewOrAdd,)
    pagination_class = Pages
    queryset = Report.objects.order_by("-start", "kind")

    def get_queryset(self) -> Any:
        """Those of a `kind`; lists are read without the figures, which may be large."""
        found = super().get_queryset()
        if self.action == "list":
            found = found.defer("figures")
            if kind := self.request.query_params.get("kind"):
                found = found.filter(kind=kind)
        return found

    def get_serializer_class(self) -> Any:
        """Short in a list, whole by itself."""
        return ReportLine if self.action == "list" else ReportWhole

    @extend_schema(
        parameters=[
            OpenApiParameter("table", str, OpenApiParameter.PATH, enum=list(pages.TABLES)),
            OpenApiParameter("form", str, OpenApiParameter.PATH, enum=list(MEDIA_TYPES)),
        ],
        responses={
            (200, media.split(";")[0]): OpenApiTypes.BINARY for media in MEDIA_TYPES.values()
        },
    )
    @action(detail=True, url_name="table", url_path=r"(?P<table>[a-z0-9_]+)\.(?P<form>csv|parquet)")
    def table(self, request: Request, pk: str, table: str, form: str) -> HttpResponse:
        """One table of a report as a file."""
        report = self.get_object()
        if table not in pages.TABLES:
            raise NotFound
        rows = pages.rows_of(report.figures, table)
        there_were = pages.rows_there_were(report.figures, table)
        answer = HttpResponse(content(rows, form, there_were), content_type=MEDIA_TYPES[form])
        title = f"{report.kind}-{report.start:%Y%m%dT%H}"
        name = name_of(title, table, len(rows), there_were, form)
        answer["Content-Disposition"] = f'attachment; filename="{name}"'
        return answer


class RunViews(
    mixins.CreateModelMixin,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    viewsets.GenericViewSet,
):
    """Runs: a list, one, a new one, and the end of one."""

    permission_classes = (MayViewOrAdd,)
    pagination_class = Pages
    queryset = ReportRun.objects.order_by("-queued_at")
    serializer_class = RunLine

    @extend_schema(responses={202: RunLine})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Ask for a run. The same one that waits already is the answer."""
        asked = self.get_serializer(data=request.data)
        asked.is_valid(raise_exception=True)
        account = request.user if isinstance(request.user, User) else None  # or a key
        waiting = report_runs.queue(**asked.validated_data, asked_by=account)
        enqueue(waiting.pk)
        return Response(self.get_serializer(waiting).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: RunLine, 409: OpenApiTypes.OBJECT})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Stop a run that waits or goes on; 409 if it is over."""
        run = self.get_object()
        if not report_runs.cancel(run):
            raise Conflict("The run is over.")
        run.refresh_from_db()
        return Response(self.get_serializer(run).data, status=status.HTTP_202_ACCEPTED)
