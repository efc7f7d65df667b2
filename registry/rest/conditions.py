"""Conditional requests of /api/v1 (RFC 9110, section 13).

A response is not repeated if the client has it already, and a state the client does not know is not
overwritten. A tag is a hash of what a read shows. Every response with a body carries it as ETag. A
read with If-None-Match is answered 304 if the tag is the same; a write with If-Match (or
If-None-Match: *, to create only) is refused with 412 unless it holds, which is decided in the
transaction of the write.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from msgnode.core.errors import PreconditionFailed

_CODES = [200, 201]


def _header(name: str, text: str) -> OpenApiParameter:
    return OpenApiParameter(name, OpenApiTypes.STR, OpenApiParameter.HEADER, description=text)


ETAG = OpenApiParameter(
    "ETag", OpenApiTypes.STR, OpenApiParameter.HEADER, required=True, response=_CODES,
    description="The tag of what is shown, for If-None-Match and If-Match.",
)  # fmt: skip
READ = [ETAG, _header("If-None-Match", "Tags that are known: 304 if one of them holds.")]
WRITE = [
    ETAG,
    _header("If-Match", "The tag that is to be changed, or *: 412 if it is another by now."),
    _header("If-None-Match", "*: 412 if it is there already."),
]
END = WRITE[1:]


def tag_of(shown: Any) -> str:
    """The tag of the fields of an answer."""
    text = msgspec.json.encode(shown, enc_hook=str)
    return f'"{blake2b(text, digest_size=12).hexdigest()}"'


def tagged(request: Request, response: Response) -> Response:
    """The answer with its tag, or 304 if the client has it."""
    tag = tag_of(response.data)
    if request.method in ("GET", "HEAD"):
        known = parse_etags(request.headers.get("If-None-Match", ""))
        if "*" in known or tag in (each.removeprefix("W/") for each in known):
            response = Response(status=304)
        response["Cache-Control"] = "private, no-cache"
    response["ETag"] = tag
    return response


def condition(request: Request) -> Callable[[Any], None] | None:
    """A check of the present state before a write, None if the request has no condition.

    It gets the fields of the entry, None if there is none, and raises PreconditionFailed.
    """
    wanted = request.headers.get("If-Match")
    unwanted = request.headers.get("If-None-Match")
    if wanted is None and unwanted is None:
        return None

    def check(shown: Any) -> None:
        tag = tag_of(shown) if shown is not None else ""
        if wanted is not None:
            tags = parse_etags(wanted)
            if not tag or not ("*" in tags or tag in tags):
                raise PreconditionFailed("It is not as If-Match says: it was changed meanwhile.")
        if unwanted is not None and tag:
            tags = [each.removeprefix("W/") for each in parse_etags(unwanted)]
            if "*" in tags or tag in tags:
                raise PreconditionFailed("It is there already, and If-None-Match says otherwise.")

    return check
