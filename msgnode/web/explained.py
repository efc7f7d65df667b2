"""`/problems/…`: a page for every error code, close code and alarm, with what to do about it.

`type` of problem details leads here, and so do the console's alarms and Prometheus' alerts. The
pages need no account and no other place: a node without a network has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from msgnode.core.explanations import ALARMS, CLOSE_CODES, ERRORS, Explanation

KINDS: Mapping[str, str] = {
    "errors": "Error codes",
    "close-codes": "Close codes of WebSockets",
    "alarms": "Alarms",
}


def pages(kind: str) -> dict[str, tuple[str, Explanation]]:
    """The pages of a kind: by the last part of their address, how each is called, and its text."""
    if kind == "errors":
        return {error.name: (str(code), error.explanation) for code, error in ERRORS.items()}
    if kind == "close-codes":
        return {str(code): (str(code), text) for code, text in CLOSE_CODES.items()}
    return {name: (name, text) for name, text in ALARMS.items()}


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """All of them."""
    groups = [(kind, title, pages(kind)) for kind, title in KINDS.items()]
    return render(request, "problems/index.html", {"groups": groups})


@require_safe
def page(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """One of them; an error's may be asked for by its code as well."""
    known = pages(kind) if kind in KINDS else {}
    if kind == "errors" and name.isdecimal() and int(name) in ERRORS:
        name = ERRORS[int(name)].name
    if name not in known:
        raise Http404
    mark, text = known[name]
    code = int(mark) if kind == "errors" else 0
    phrase = HTTPStatus(code).phrase if code else ""
    facts = {"kind": KINDS[kind], "mark": mark, "phrase": phrase, "text": text}
    return render(request, "problems/page.html", facts)
