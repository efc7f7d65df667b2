"""The node's protostubs as catalogue entries: who gets which, and its descriptor.

docs/reference/messages.md, section 6.6.

Everything said about a stub is computed from the very file that is served, once a process, so that
descriptor, source package, version and script cannot differ. The version ends in the source's hash:
runtimes cache by cguid and version, and a changed stub is never taken for the old one.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from django.conf import settings

from .bundle import bundled

_PACKAGE = Path(__file__).resolve().parent.parent

RELEASE = "1.0.0"
DEFAULT = "default"

_IMPORT = re.compile(r"^import .*$", re.MULTILINE)
# What a runtime may say of itself that does not decide which stub it can run.
_CAPABILITIES = frozenset(
    {
        *("mic", "camera", "sensor", "webrtc", "ortc", "datachannel", "coap"),
        *("http", "https", "ws", "wss"),
    }
)


@dataclass(frozen=True)
class ServedStub:
    """A stub the node serves.

    name       the catalogue's name for it        suffix     of its script, such as "ps.js"
    path       the file that is served            platforms  constraints, one of which it needs
    language   in the catalogue's enumeration     media_type of its script
    max_frame  the name of the setting that holds the node's largest frame
    kind       PROTOSTUB, or IDP_PROXY for the proxy of the node's identity provider
    role       what a P2P stub does; such a one connects to no node, and is one module of many files
    base       the file that its one import names, which is served in the place of that line
    endpoint   where it connects to, below the node's address
    """

    name: str
    path: Path
    language: str
    class_name: str
    platforms: tuple[str, ...]
    suffix: str
    media_type: str
    max_frame: str = ""
    kind: str = "PROTOSTUB"
    base: Path | None = None
    endpoint: str = "ws"
    role: str = ""

    @property
    def is_idp_proxy(self) -> bool:
        """Whether it is the proxy of the node's identity provider."""
        return self.kind == "IDP_PROXY"

    @cached_property
    def source(self) -> str:
        """Its script, with its base in the place of the import."""
        if self.role:
            return bundled(self.path)
        text = self.path.read_text(encoding="utf-8")
        if self.base is None:
            return text
        return _IMPORT.sub(lambda _: self.base_source, text, count=1)

    @property
    def base_source(self) -> str:
        """The file its import names, or nothing."""
        return "" if self.base is None else self.base.read_text(encoding="utf-8")

    @property
    def needs_websocket(self) -> bool:
        """Whether it connects to the node's WebSocket endpoint."""
        return self.endpoint == "ws"

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of its script."""
        return hashlib.sha256(self.source.encode()).digest()

    @property
    def version(self) -> str:
        """The node's release, and the beginning of the script's digest."""
        return f"{RELEASE}+{self.digest.hex()[:12]}"

    @property
    def _transport(self) -> dict[str, bool]:
        if self.role:
            return {"webrtc": True}
        has_sockets = self.needs_websocket
        known = {"ws": has_sockets, "wss": has_sockets}
        return known if has_sockets else {"http": True, "https": True, **known}

    def suits(self, asked: frozenset[str]) -> bool:
        """Whether a runtime that is one of `asked` can run it; one that says nothing takes it."""
        return not asked or not asked.isdisjoint(self.platforms)

    def _description(self, domain: str) -> str:
        if self.role:
            return self.role
        does = "Logs in at" if self.is_idp_proxy else "Links a runtime with"
        return f"{does} the Messaging Node of {domain}."

    def descriptor(self, domain: str, configuration: dict[str, Any]) -> dict[str, Any]:
        """The catalogue object, with what the stub is to be configured with."""
        folder = "idp-proxy" if self.is_idp_proxy else "protocolstub"
        entry = f"https://{domain}/.well-known/{folder}/{self.name}"
        return {
            "cguid": str(uuid.uuid5(uuid.NAMESPACE_URL, entry)),
            "type": self.kind,
            "version": self.version,
            "objectName": self.class_name,
            "description": self._description(domain),
            "language": self.language,
            "sourcePackageURL": "/sourcePackage",
            "sourcePackage": {
                "encoding": "utf-8",
                "sourceCodeClassname": self.class_name,
                "sourceCode": self.source,
                "integrity": f"sha256-{base64.b64encode(self.digest).decode()}",
                "signature": "",
            },
            "signature": "",
            "messageSchema": "",
            "messageSchemas": [],
            "configuration": configuration,
            "constraints": {**dict.fromkeys(self.platforms, True), **self._transport},
            "hypertyType": [],
            "dataObjects": [],
            "interworking": False,
            "idpProxy": self.is_idp_proxy,
            "accessControlPolicy": "",
        }


SERVED = (
    ServedStub(
        name=DEFAULT,
        path=_PACKAGE / "runtime" / "js" / "src" / "protostub.js",
        language="JAVASCRIPT_ECMA6",
        class_name="MessagingNodeProtoStub",
        platforms=("browser", "node", "windowSandbox"),
        suffix="ps.js",
        media_type="text/javascript; charset=utf-8",
        max_frame="maxFrame",
    ),
    ServedStub(
        name="python",
        path=_PACKAGE / "runtime" / "python" / "protostub.py",
        language="PYTHON",
        class_name="Protostub",
        platforms=("python",),
        suffix="ps.py",
        media_type="text/x-python; charset=utf-8",
        max_frame="max_frame",
    ),
)


HTTP_STUB = ServedStub(
    name="http",
    path=_PACKAGE / "runtime" / "js" / "src" / "http-protostub.js",
    base=_PACKAGE / "runtime" / "js" / "src" / "protostub.js",
    language="JAVASCRIPT_ECMA6",
    class_name="MessagingNodeProtoStub",
    platforms=("browser", "node", "windowSandbox"),
    suffix="ps.js",
    media_type="text/javascript; charset=utf-8",
    max_frame="maxFrame",
    endpoint="device/v1",
)
"""Served where devices over HTTP are switched on."""


def _p2p_stub(name: str, role: str) -> ServedStub:
    return ServedStub(
        name=name,
        path=_PACKAGE / "runtime" / "js" / "src" / "p2p" / "stub.js",
        language="JAVASCRIPT_ECMA6",
        class_name="P2PStub",
        platforms=("windowSandbox",),
        suffix="ps.js",
        media_type="text/javascript; charset=utf-8",
        role=role,
    )


P2P_STUBS = (
    _p2p_stub("p2p-handler", "Takes the connections that other runtimes set up with a runtime."),
    _p2p_stub("p2p-requester", "Sets up a connection with another runtime."),
)
"""One script, which its configuration makes the one or the other."""


IDP_PROXY = ServedStub(
    name=DEFAULT,
    path=_PACKAGE / "static" / "msgnode" / "idp-proxy.js",
    language="JAVASCRIPT_ECMA6",
    class_name="IdentityProxy",
    platforms=("browser", "windowSandbox"),
    suffix="idp.js",
    media_type="text/javascript; charset=utf-8",
    kind="IDP_PROXY",
)


def served(kind: str) -> tuple[ServedStub, ...]:
    """The stubs that link a runtime with the node, or the proxy of its identity provider."""
    if kind == "idp-proxy":
        return (IDP_PROXY,)
    if kind not in ("protocolstub", "protostub"):
        return ()
    return (*SERVED, HTTP_STUB) if settings.DEVICE_HTTP else SERVED


def entries(kind: str) -> tuple[ServedStub, ...]:
    """The entries of a type of the catalogue, with those that link no runtime with the node."""
    found = served(kind)
    return found if kind == "idp-proxy" or not found else (*found, *P2P_STUBS)


def names(kind: str = "protocolstub") -> list[str]:
    """What a listing of the stubs shows."""
    return [stub.name for stub in entries(kind)]


def find(name: str, domain: str, kind: str = "protocolstub") -> ServedStub | None:
    """The stub of this name; the node's own domain is a name of the default."""
    if name.lower() == domain:
        name = DEFAULT
    return next((stub for stub in entries(kind) if stub.name == name), None)


def select(constraints: Mapping[str, Any], named: ServedStub) -> ServedStub | None:
    """The first stub that a runtime with these constraints can run.

    They stand in the object itself or under `constraints`. A true one that is no mere capability
    names a kind of runtime; one that has neither `ws` nor `wss` takes the stub over HTTP, if it is
    served. No other stub takes the place of a P2P stub or of an identity proxy.

    Args:
        constraints: of the runtime.
        named: the stub that it asks at.

    Returns:
        The stub, or None if there is none for it.
    """
    inner = constraints.get("constraints")
    said = inner if isinstance(inner, Mapping) else constraints
    has_sockets = not (said.get("ws", True) is False and said.get("wss", True) is False)
    asked = frozenset(key for key, value in said.items() if value is True) - _CAPABILITIES
    if named.role or named.is_idp_proxy:
        return named if named.suits(asked) else None
    fitting = (stub for stub in served("protocolstub") if stub.needs_websocket == has_sockets)
    return next((stub for stub in fitting if stub.suits(asked)), None)
