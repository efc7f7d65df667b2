"""Asks catalogues for descriptors and sources; nothing is kept, nothing is run.

The forms, in this order, until one is there (404, 405, 501 and 415 say "not here"):

    POST <domain>/.well-known/<kind>/default           with this runtime's constraints
    GET  …/python, …/default, …/default.ps.json        (`.idp.json` of an identity proxy)
    the same at the home catalogue, under the domain's name
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from .descriptor import Descriptor, DescriptorError, check_descriptor
from .fetch import MAX_SOURCE, Answer, FetchError, fetch
from .settings import Settings

CONSTRAINTS = {"python": True, "ws": True, "wss": True}
_ABSENT = frozenset({404, 405, 410, 415, 501})


class NoEntry(Exception):
    """No catalogue knows a stub of this domain."""


class Catalogue:
    """The catalogues a runtime asks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._asserted: dict[str, tuple[tuple[str, ...], float]] = {}

    def expect(self, domain: str, digests: tuple[str, ...], until: float) -> None:
        """Until a time (seconds since the epoch), take no stub of a domain but with these digests.

        What the settings list for the domain goes before."""
        self._asserted[domain] = (digests, until)

    async def descriptor(self, domain: str, kind: str = "protocolstub") -> Descriptor:
        """The checked descriptor of a domain's stub.

        Raises:
            NoEntry: nobody has one.
            DescriptorError: it is wrong, or cannot run here.
            FetchError: the catalogue does not answer, or not with a descriptor.
        """
        home = self._settings.domain
        base = f"{self._settings.catalogue_of(domain)}/.well-known/{kind}"
        is_legacy = domain.split(".", 1)[0] in self._settings.interworking
        found = None
        unsuitable: DescriptorError | None = None
        if not is_legacy:
            try:
                found = await self._first(base, ("default", "python", "default"), kind, domain)
            except DescriptorError as error:
                if error.code != 501:
                    raise
                unsuitable = error
        if found is None and domain != home:
            base = f"{self._settings.catalogue_of(home)}/.well-known/{kind}"
            found = await self._first(base, (domain,) * 3, kind, domain)
        if found is None:
            if unsuitable is not None:
                raise unsuitable
            raise NoEntry(f"No catalogue has a stub of {domain}.")
        return found

    async def source(self, descriptor: Descriptor) -> str:
        """The source that a descriptor names. Raises FetchError, DescriptorError."""
        if descriptor.source:
            return descriptor.source
        answer = await fetch(descriptor.source_url, self._settings.fetch, MAX_SOURCE)
        if answer.status != 200:
            text = f"the catalogue answers {answer.status}."
            raise DescriptorError("sourcePackageURL", text)
        try:
            return answer.body.decode()
        except UnicodeDecodeError:
            raise DescriptorError("sourcePackage.sourceCode", "is not UTF-8 text.") from None

    async def version(self, domain: str, kind: str = "protocolstub") -> str:
        """The version that the catalogue has now, "" if it does not tell."""
        base = f"{self._settings.catalogue_of(domain)}/.well-known/{kind}"
        for name in ("python", "default"):
            try:
                answer = await fetch(f"{base}/{name}/version", self._settings.fetch, 1024)
            except FetchError:
                return ""
            if answer.status == 200:
                return answer.body.decode(errors="replace").strip().strip('"')
        return ""

    async def _first(
        self, base: str, names: tuple[str, str, str], kind: str, domain: str
    ) -> Descriptor | None:
        """The first descriptor found below a base; one for another runtime is kept in mind."""
        constrained, python, plain = names
        suffix = "idp.json" if kind == "idp-proxy" else "ps.json"
        unsuitable: DescriptorError | None = None
        asked: list[tuple[str, Any]] = [(constrained, CONSTRAINTS), (python, None)]
        if plain != python:
            asked.append((plain, None))
        asked.append((f"{plain}.{suffix}", None))
        for name, constraints in asked:
            url = f"{base}/{name}"
            answer = await fetch(url, self._settings.fetch, constraints=constraints)
            if answer.status in _ABSENT:
                continue
            try:
                raw = _decoded(answer, url)
                found = check_descriptor(raw, domain, self._settings, kind, url)
                return self._narrowed(found)
            except DescriptorError as error:
                if error.code != 501:
                    raise
                unsuitable = error
        if unsuitable is not None:
            raise unsuitable
        return None

    def _narrowed(self, descriptor: Descriptor) -> Descriptor:
        """The descriptor with the digests that the domain's identity provider asserts."""
        digests, until = self._asserted.get(descriptor.domain, ((), 0.0))
        is_asserted = until > time.time() and descriptor.kind == "protocolstub"
        if not is_asserted or descriptor.digests:
            return descriptor
        return replace(descriptor, digests=digests)


def _decoded(answer: Answer, url: str) -> Any:
    if answer.status != 200:
        code = 504 if answer.status >= 500 else 502
        raise FetchError(code, f"The catalogue answers {answer.status} at {url}.")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise DescriptorError("descriptor", "is not JSON.") from None
