"""Catalogue descriptors of protostubs, checked before anything of them runs.

    check_descriptor(raw, domain, settings)   -> Descriptor, or DescriptorError naming the field
    Descriptor.check_source(source)           digest and signature against the source itself

Rules
- A field that is wrong refuses the descriptor with the field's name: 502, and 501 for what this
  runtime cannot run (language, constraints). `cguid`, `version`, `objectName` and `type`, which
  catalogues of files do not have, may be missing.
- The source of `<name>.ps.json` without one is `<name>.ps.py` beside it.
- `sourcePackageURL` and `configuration.url` (or `messagingnode` where there is none) stay on the
  stub's own domain, or a listed host.
- A digest that is given must hold; so must a signature where the settings have the domain's key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from .fetch import MAX_SOURCE, is_loopback
from .settings import Settings

HASHES = ("sha256", "sha384", "sha512")
PLATFORMS = frozenset({"browser", "node", "python", "windowSandbox"})
CAPABILITIES = frozenset({"http", "https", "ws", "wss"})
INLINE = "/sourcePackage"
_TEXTS = (
    *("description", "messageSchema", "accessControlPolicy", "mutualAuthentication"),
    *("signature", "sourcePackageURL", "cguid", "objectName", "type"),
)
_LISTS = ("messageSchemas", "hypertyType", "dataObjects")
_FLAGS = ("interworking", "idpProxy")
_TYPES = {"protocolstub": "PROTOSTUB", "idp-proxy": "IDP_PROXY"}
_ENDPOINTS = {"ws": 80, "wss": 443, "http": 80, "https": 443}


class DescriptorError(Exception):
    """A descriptor or source that is refused; `field` says because of what."""

    def __init__(self, field: str, text: str, code: int = 502) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.code = code


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor that was checked.

    source_url  where the source is, "" if `source` has it
    endpoint    (host, port) that the stub may connect to, None if its configuration has no URL
    """

    domain: str
    kind: str
    cguid: str
    version: str
    class_name: str
    source: str
    source_url: str
    integrity: str
    signature: str
    signer: str
    digests: tuple[str, ...]
    configuration: dict[str, Any]
    endpoint: tuple[str, int] | None

    def check_source(self, source: str) -> str:
        """The digest of the source, if nothing speaks against it. Raises DescriptorError."""
        data = source.encode()
        if len(data) > MAX_SOURCE:
            raise DescriptorError("sourcePackage.sourceCode", f"more than {MAX_SOURCE} bytes.")
        if self.integrity and not _fits(self.integrity, data):
            raise DescriptorError("sourcePackage.integrity", "the source has another digest.")
        if self.digests and not any(_fits(digest, data) for digest in self.digests):
            text = "the source has none of the digests that are listed for this domain."
            raise DescriptorError("sourcePackage.integrity", text)
        if self.signer:
            _check_signature(self.signer, self.signature, data)
        return digest_of(source)


def digest_of(source: str) -> str:
    """The SHA-256 of a source, as in `integrity`."""
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"


def check_descriptor(
    raw: Any, domain: str, settings: Settings, kind: str = "protocolstub", base: str = ""
) -> Descriptor:
    """Read a descriptor that a catalogue gave for a domain.

    Args:
        raw: decoded JSON.
        domain: whose stub it must be.
        settings: what the runtime allows.
        kind: of its entry in the catalogue, such as "protocolstub".
        base: URL the descriptor came from, which relative URLs in it are relative to.

    Raises:
        DescriptorError: naming the first field that is wrong.
    """
    _check_types(raw)
    type_ = raw.get("type") or _TYPES[kind]
    if type_.upper() != _TYPES[kind]:
        raise DescriptorError("type", f"{type_[:40]!r} instead of {_TYPES[kind]}.")
    language = _required_text(raw, "language")
    if not language.lower().startswith("python"):
        raise DescriptorError("language", f"{language[:40]!r} cannot run here.", 501)
    _check_constraints(raw.get("constraints"))
    version = "" if raw.get("version") is None else raw["version"]
    if isinstance(version, bool) or not isinstance(version, str | int | float):
        raise DescriptorError("version", "is neither a text nor a number.")
    package = raw.get("sourcePackage") or {}
    if not isinstance(package, dict):
        raise DescriptorError("sourcePackage", "is not an object.")
    class_name = _class_name(raw, package)
    source, source_url = _source(raw, package, base)
    integrity = package.get("integrity") or ""
    if not isinstance(integrity, str) or (integrity and _digest(integrity) is None):
        raise DescriptorError("sourcePackage.integrity", "is no digest such as sha256-….")
    signature = package.get("signature") or raw.get("signature") or ""
    if not isinstance(signature, str):
        raise DescriptorError("signature", "is not a text.")
    configuration = _configuration(raw.get("configuration"))
    return Descriptor(
        domain=domain,
        kind=kind,
        cguid=raw.get("cguid") or "",
        version=str(version),
        class_name=class_name,
        source=source,
        source_url=source_url,
        integrity=integrity,
        signature=signature,
        signer=settings.signers.get(domain, ""),
        digests=tuple(settings.digests.get(domain, ())),
        configuration=configuration,
        endpoint=_endpoint(configuration, domain, settings),
    )


def _check_types(raw: Any) -> None:
    if not isinstance(raw, dict):
        raise DescriptorError("descriptor", "is not a JSON object.")
    for names, kind, what in (
        (_TEXTS, str, "text"),
        (_LISTS, list, "list"),
        (_FLAGS, bool, "flag"),
    ):
        for name in names:
            if raw.get(name) is not None and not isinstance(raw[name], kind):
                raise DescriptorError(name, f"is no {what}.")


def _class_name(raw: dict[str, Any], package: dict[str, Any]) -> str:
    name = raw.get("objectName") or ""
    class_name = package.get("sourceCodeClassname") or (name if name.isidentifier() else "")
    if not isinstance(class_name, str) or (class_name and not class_name.isidentifier()):
        raise DescriptorError("sourcePackage.sourceCodeClassname", "is not the name of a class.")
    return class_name


def _required_text(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        raise DescriptorError(name, "is missing or not a text.")
    return value


def _check_constraints(raw: Any) -> None:
    if raw is None:
        return
    if not isinstance(raw, dict):
        raise DescriptorError("constraints", "is not an object.")
    for name, value in raw.items():
        if not isinstance(value, bool):
            raise DescriptorError(f"constraints.{name}"[:60], "is neither true nor false.")
    needed = sorted(name for name, value in raw.items() if value)
    platforms = [name for name in needed if name in PLATFORMS]
    if platforms and "python" not in platforms:
        raise DescriptorError(f"constraints.{platforms[0]}", "is not here: this is Python.", 501)
    for name in needed:
        if name not in PLATFORMS and name not in CAPABILITIES:
            raise DescriptorError(f"constraints.{name}"[:60], "is not here.", 501)


def _source(raw: dict[str, Any], package: dict[str, Any], base: str) -> tuple[str, str]:
    """(source, "") or ("", URL of it)."""
    code = package.get("sourceCode")
    if code is not None:
        if not isinstance(code, str) or not code:
            raise DescriptorError("sourcePackage.sourceCode", "is empty or not a text.")
        encoding = package.get("encoding") or "utf-8"
        if not isinstance(encoding, str) or encoding.lower() not in ("utf-8", "utf8", "base64"):
            raise DescriptorError("sourcePackage.encoding", "is neither utf-8 nor base64.")
        if encoding.lower() == "base64":
            try:
                code = base64.b64decode(code, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                raise DescriptorError("sourcePackage.sourceCode", "is not base64 text.") from None
        if len(code) > MAX_SOURCE:
            raise DescriptorError("sourcePackage.sourceCode", f"more than {MAX_SOURCE} bytes.")
        return code, ""
    url = raw.get("sourcePackageURL")
    if url in (None, "", INLINE) and base.endswith((".ps.json", ".idp.json")):
        url = f"{base.removesuffix('json')}py"
    if not isinstance(url, str) or not url or url == INLINE:
        raise DescriptorError("sourcePackageURL", "there is neither a source nor a URL of one.")
    try:
        url = urljoin(base, url)
        there, here = urlsplit(url), urlsplit(base)
        same = (there.scheme, there.hostname, there.port) == (here.scheme, here.hostname, here.port)
    except ValueError:
        raise DescriptorError("sourcePackageURL", "is not a URL.") from None
    if not same:
        raise DescriptorError("sourcePackageURL", f"{there.hostname} is another host.")
    if there.scheme != "https" and not is_loopback(there.hostname or ""):
        raise DescriptorError("sourcePackageURL", "is not https.")
    return "", url


def _configuration(raw: Any) -> dict[str, Any]:
    if raw is None or raw == "":
        return {}
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            raise DescriptorError("configuration", "is a text that is not JSON.") from None
    if not isinstance(raw, dict):
        raise DescriptorError("configuration", "is neither an object nor JSON text of one.")
    return raw


def _endpoint(
    configuration: dict[str, Any], domain: str, settings: Settings
) -> tuple[str, int] | None:
    """Where the stub may connect to. Raises DescriptorError."""
    name = "url" if configuration.get("url") is not None else "messagingnode"
    url, field = configuration.get(name), f"configuration.{name}"
    if url is None:
        return None
    if not isinstance(url, str):
        raise DescriptorError(field, "is not a text.")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise DescriptorError(field, "is not a URL.") from None
    if parts.scheme not in _ENDPOINTS or not host:
        raise DescriptorError(field, "is no URL of ws, wss, http or https.")
    own = {urlsplit(f"//{domain}").hostname or "", urlsplit(settings.catalogue_of(domain)).hostname}
    own.update(settings.hosts.get(domain, ()))
    if not any(host == name or host.endswith(f".{name}") for name in own if name):
        raise DescriptorError(field, f"{host} is not a host of {domain}.")
    if parts.scheme in ("ws", "http") and not is_loopback(host):
        raise DescriptorError(field, "is not encrypted (wss, https).")
    return host, port or _ENDPOINTS[parts.scheme]


def _digest(integrity: str) -> tuple[str, bytes] | None:
    name, dash, text = integrity.partition("-")
    if not dash or name not in HASHES:
        return None
    try:
        value = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return (name, value) if len(value) == hashlib.new(name).digest_size else None


def _fits(integrity: str, data: bytes) -> bool:
    known = _digest(integrity)
    return known is not None and hashlib.new(known[0], data).digest() == known[1]


def _check_signature(signer: str, signature: str, data: bytes) -> None:
    """ECDSA P-256 with SHA-256, r and s of 32 bytes each in base64."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, utils
    except ImportError:
        text = "cannot be checked: the package `cryptography` is not installed."
        raise DescriptorError("sourcePackage.signature", text) from None
    try:
        value = base64.b64decode(signature, validate=True)
        key = serialization.load_pem_public_key(signer.encode())
        if len(value) != 64 or not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError
        encoded = utils.encode_dss_signature(
            int.from_bytes(value[:32], "big"), int.from_bytes(value[32:], "big")
        )
        key.verify(encoded, data, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        raise DescriptorError("sourcePackage.signature", "does not verify.") from None
