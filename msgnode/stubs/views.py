"""`/.well-known/<type>/…`: the node's catalogue over HTTP, in all forms runtimes ask for.

<type>/                    names                  <type>/<name>          descriptor
<type>/all.json            names, under a key     <type>/<name>/<field>  a field, and below it
<type>/<name>.ps.js, .py   the script             <type>/<name>.ps.json  descriptor
(`.idp.js` and `.idp.json` of an identity proxy)
runtime/<name>             what the runtime's package is called, and its digest
runtime/<file>             that package
POST of constraints to <type>/<name>: the descriptor of the stub that such a runtime can run; to
<type>/<name>/<field>: that field of it

Readable from every origin: runtimes load stubs of domains that are not theirs. Copies are kept, but
asked for anew each time (`no-cache` with an ETag), so that script and descriptor belong together.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from msgnode.core.explanations import ERRORS
from msgnode.resources import SHARED

from . import catalogue, wheel
from .catalogue import ServedStub

STUB_TYPES = ("protocolstub", "protostub")
IDP_TYPES = ("idp-proxy",)
RUNTIME_TYPE = "runtime"
OTHER_TYPES = ("hyperty", RUNTIME_TYPE, "dataschema")
"""Types of the catalogue that are no stubs; a node has entries of `runtime` alone."""
_JAVASCRIPT = Path(__file__).resolve().parent.parent / "runtime" / "js"


@method_decorator(csrf_exempt, name="dispatch")  # constraints change nothing here
class CatalogueView(View):
    """The catalogue below `/.well-known/`."""

    http_method_names = ["get", "head", "post", "options"]

    def get(self, request: HttpRequest, kind: str, rest: str = "") -> HttpResponse:
        """An entry of the catalogue, or one of its parts; 304 if the client has it."""
        response = self._found(request, kind, rest)
        if response.status_code == HTTPStatus.OK:
            etag = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
            response["ETag"] = etag
            response["Cache-Control"] = "public, no-cache"
            response = get_conditional_response(request, etag=etag, response=response) or response
        return _readable(response)

    def post(self, request: HttpRequest, kind: str, rest: str = "") -> HttpResponse:
        """The stub that runs under the constraints in the body."""
        try:
            constraints = json.loads(request.body or b"{}")
        except (ValueError, RecursionError):
            constraints = None
        if not isinstance(constraints, dict):
            return _readable(_problem(HTTPStatus.BAD_REQUEST, "Constraints are a JSON object."))
        name, *fields = (rest.strip("/") or catalogue.DEFAULT).split("/")
        named = catalogue.find(name, settings.DOMAIN, kind)
        if named is None:
            return _readable(_unknown(kind, rest))
        stub = catalogue.select(constraints, named)
        if stub is None:
            asked = ", ".join(sorted(map(str, constraints)))[:200]
            text = f"No stub of this node runs under these constraints: {asked}."
            return _readable(_problem(HTTPStatus.NOT_FOUND, text))
        return _readable(_field(_descriptor(request, stub), fields) or _unknown(kind, rest))

    def options(self, request: HttpRequest, kind: str, rest: str = "") -> HttpResponse:
        """What a page of another origin may ask."""
        response = HttpResponse(status=HTTPStatus.NO_CONTENT)
        response["Allow"] = response["Access-Control-Allow-Methods"] = "GET, HEAD, POST, OPTIONS"
        response["Access-Control-Allow-Headers"] = "Content-Type, If-None-Match"
        response["Access-Control-Max-Age"] = "86400"
        return _readable(response)

    def _found(self, request: HttpRequest, kind: str, rest: str) -> HttpResponse:
        rest = rest.strip("/")
        if kind == RUNTIME_TYPE:
            return _runtime(rest)
        if not rest:
            return JsonResponse(catalogue.names(kind), safe=False)
        if rest == "all.json":
            return JsonResponse({f"{kind}s": catalogue.names(kind)})
        name, *fields = rest.split("/")
        stub, suffix = _by_file_name(name, kind)
        if stub is None or (fields and suffix):
            return _unknown(kind, rest)
        if suffix == stub.suffix:
            return HttpResponse(stub.source, content_type=stub.media_type)
        return _field(_descriptor(request, stub), fields) or _unknown(kind, rest)


def _runtime(rest: str) -> HttpResponse:
    if not rest:
        return JsonResponse([each.name for each in PACKAGES], safe=False)
    package = find_package(rest)
    if package is None:
        return _unknown(RUNTIME_TYPE, rest)
    if rest == package.file_name:
        return HttpResponse(package.content, content_type=package.media_type)
    return JsonResponse(package.descriptor())


def _by_file_name(name: str, kind: str) -> tuple[ServedStub | None, str]:
    """The stub of `<name>` or `<name>.ps.<suffix>` (of an identity proxy `.idp.`), and suffix."""
    for stub in catalogue.entries(kind):
        for suffix in (stub.suffix, f"{stub.suffix.split('.')[0]}.json"):
            base = name.removesuffix(f".{suffix}")
            if base != name and catalogue.find(base, settings.DOMAIN, kind) is stub:
                return stub, suffix
    return catalogue.find(name, settings.DOMAIN, kind), ""


def _descriptor(request: HttpRequest, stub: ServedStub) -> dict[str, Any]:
    if stub.is_idp_proxy:
        return stub.descriptor(settings.DOMAIN, _provider())
    if stub.role:
        return stub.descriptor(settings.DOMAIN, {})
    scheme = ("ws" if stub.needs_websocket else "http") + ("s" if request.is_secure() else "")
    url = f"{scheme}://{request.get_host()}/{stub.endpoint}"
    limit = int(settings.NODE["MAX_FRAME_BYTES"])
    if not stub.needs_websocket:
        limit -= len("[]")  # it posts lists
    return stub.descriptor(settings.DOMAIN, {"url": url, stub.max_frame: limit})


def _provider() -> dict[str, Any]:
    """What an identity proxy needs. The client has no secret: its flow is bound by PKCE."""

    def at(page: str) -> str:
        return f"{settings.PUBLIC_URL}{reverse(f'oauth2_provider:{page}')}"

    return {
        "domain": settings.DOMAIN,
        "authorisation": at("authorize"),
        "token": at("token"),
        "tokenInfo": at("token-info"),
        "userInfo": at("user-info"),
        "jwks": at("jwks-info"),
        "revoke": at("revoke-token"),
        "scope": "openid email profile",
        "clientId": "newcomer",
        "redirectURI": f"{settings.PUBLIC_URL}/",
    }


def _field(value: Any, fields: list[str]) -> HttpResponse | None:
    """The value below these field names: texts as text, everything else as JSON."""
    for name in fields:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    if isinstance(value, str):
        return HttpResponse(value, content_type="text/plain; charset=utf-8")
    return JsonResponse(value, safe=False)


def _unknown(kind: str, rest: str) -> HttpResponse:
    return _problem(HTTPStatus.NOT_FOUND, f"The catalogue has no {kind} {rest[:200]!r}.")


def _problem(status: HTTPStatus, detail: str) -> HttpResponse:
    """Problem details (RFC 9457)."""
    name, explanation = ERRORS[status]
    link = reverse("problem", args=["errors", name])
    body = {"type": link, "title": explanation.title, "status": status, "detail": detail}
    return JsonResponse(body, status=status, content_type="application/problem+json")


def _readable(response: HttpResponse) -> HttpResponse:
    response["Access-Control-Allow-Origin"] = "*"
    response["Access-Control-Expose-Headers"] = "ETag"
    return response


@dataclass(frozen=True)
class ServedPackage:
    """A package the node serves.

    name     the catalogue's name for it       file_name   of the download
    version  of the package, not of the node   media_type  of the download
    build    makes its bytes
    """

    name: str
    file_name: str
    version: str
    media_type: str
    language: str
    build: Callable[[], bytes]

    @cached_property
    def content(self) -> bytes:
        """Its bytes, made when they are first asked for."""
        return self.build()

    def descriptor(self) -> dict[str, Any]:
        """What the catalogue says of it."""
        digest = base64.b64encode(hashlib.sha256(self.content).digest()).decode()
        return {
            "type": "RUNTIME",
            "objectName": self.name,
            "version": self.version,
            "language": self.language,
            "sourcePackageURL": f"/.well-known/runtime/{self.file_name}",
            "integrity": f"sha256-{digest}",
            "bytes": len(self.content),
        }


def javascript_package() -> bytes:
    """The archive that `npm install URL` and `tar` read: everything below `package/`."""
    files = [_JAVASCRIPT / "package.json", _JAVASCRIPT / "README.md"]
    files += sorted(path for path in (_JAVASCRIPT / "src").rglob("*") if path.is_file())
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in files:
            entry = tarfile.TarInfo(f"package/{path.relative_to(_JAVASCRIPT).as_posix()}")
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)
        entry = tarfile.TarInfo("package/LICENSE")
        licence = (SHARED / "LICENSE").read_bytes()
        entry.size, entry.mode = len(licence), 0o644
        tar.addfile(entry, io.BytesIO(licence))
    return gzip.compress(archive.getvalue(), mtime=0)


_IN_JAVASCRIPT = json.loads((_JAVASCRIPT / "package.json").read_text(encoding="utf-8"))
PACKAGES = (
    ServedPackage(
        name="js",
        file_name="js.tgz",
        version=_IN_JAVASCRIPT["version"],
        media_type="application/gzip",
        language="JAVASCRIPT_ECMA6",
        build=javascript_package,
    ),
    ServedPackage(
        name="python",
        file_name=wheel.FILE_NAME,
        version=wheel.VERSION,
        media_type="application/octet-stream",
        language="PYTHON",
        build=wheel.build,
    ),
)


def find_package(name: str) -> ServedPackage | None:
    """The package of this name or file name."""
    return next((each for each in PACKAGES if name in (each.name, each.file_name)), None)
