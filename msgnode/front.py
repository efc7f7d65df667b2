"""`/`: where a newcomer's browser lands. Plain text; the addresses are those it was asked by."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse

_TEXT = """\
Messaging Node of {domain}

Runtimes    {socket}/ws
Stubs       {socket}/stub/connect?runtimeURL=...
Console     {page}/admin/
Health      {page}/health/live  {page}/health/ready
Metrics     {page}/metrics
"""


def front(request: HttpRequest) -> HttpResponse:
    """What is here, in a few lines."""
    text = _TEXT.format(
        domain=settings.DOMAIN,
        page=request.build_absolute_uri("/").rstrip("/"),
        socket=f"{'wss' if request.is_secure() else 'ws'}://{request.get_host()}",
    )
    return HttpResponse(text, content_type="text/plain; charset=utf-8")
