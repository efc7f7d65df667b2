"""Settings of a runtime; times are in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from .arguments import check_text, wrong
from .p2p.settings import P2PSettings

_BY_DOMAIN = (
    *("catalogues", "hosts", "routing", "digests", "signers"),
    *("registries", "registry_keys", "stub_config"),
)
_NONE: Mapping[str, Any] = MappingProxyType({})

__version__ = "1.0.0"
"""Of this package: semantic, and not that of the node."""

SANDBOX_WORDS = ("required", "best-effort")
ROUTES = ("stub", "node", "stub-else-node")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use."""

    start: float = 10.0  # from the start of the process until the stub says `created`
    memory: int = 64 * 1024 * 1024  # beyond what the interpreter needs
    port_queue: int = 4 * 1024 * 1024  # that wait to be read by the sandbox
    silence: float = 5.0  # without an answer to a ping
    rate: int = 1_000  # messages a second that are read from a sandbox
    rate_bytes: int = 4 * 1024 * 1024  # and bytes
    busy: float = 30.0  # of using more than 80 % of a processor
    line: int = 8 * 1024 * 1024  # of one message on the port, which may be written longer there
    sandboxes: int = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """How a runtime finds, checks and runs protostubs.

    Attributes:
        domain: the home domain, whose stub connects at log_in().
        catalogues: the catalogue of a domain, where it is not at `https://<domain>`. `http` is
            taken on the loopback only.
        hosts: hosts besides its own that the stub of a domain may connect to.
        routing: "stub", "node" or "stub-else-node" for a domain abroad; "node" sends through the
            home stub, "stub-else-node" does while the domain's own cannot be loaded here.
        interworking: legacy schemes for which the home catalogue has a stub.
        sandbox: "required" refuses foreign stubs where the kernel cannot confine them,
            "best-effort" runs them with what there is and says so.
        home_in_process: whether the home stub may run in this process, if it is the very one that
            this package contains.
        private_networks: whether stubs from abroad may connect to private addresses.
        digests: the digests that the operator lists for a domain (`sha256-…`).
        signers: public keys (PEM) for domains whose stubs must be signed.
        registries: the base URL of the registry of a domain (`https://<domain>/domain-registry`)
            where it is asked over REST instead of by messages; `http` on the loopback only.
        registry_keys: an API key for the registry of a domain; it goes nowhere else.
        stub_config: configuration for the stub of a domain that wins over its descriptor's, such as
            `{"example.com": {"max_delay": 5.0}}`.
        p2p: how this runtime talks with others directly; None: always through the node.
    """

    domain: str
    catalogues: Mapping[str, str] = field(default_factory=lambda: _NONE)
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    routing: Mapping[str, str] = field(default_factory=lambda: _NONE)
    interworking: frozenset[str] = frozenset()
    sandbox: str = "required"
    home_in_process: bool = True
    private_networks: bool = False
    digests: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    signers: Mapping[str, str] = field(default_factory=lambda: _NONE)
    registries: Mapping[str, str] = field(default_factory=lambda: _NONE)
    registry_keys: Mapping[str, str] = field(default_factory=lambda: _NONE)
    stub_config: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _NONE)
    p2p: P2PSettings | None = None
    limits: Limits = field(default_factory=Limits)
    load: float = 20.0  # a whole load
    live: float = 30.0  # until a stub that has something to do is live
    fetch: float = 10.0  # one request to a catalogue
    retry_load: tuple[float, float] = (5.0, 300.0)  # after a load failed: first, longest
    retry_sandbox: tuple[float, float] = (1.0, 60.0)  # after a sandbox died
    idle: float = 600.0  # until an unused stub is unloaded
    idle_abroad: float = 60.0
    forget: float = 600.0  # until the entry of an unloaded stub goes
    revalidate: float = 900.0  # between two looks at the version of a stub in use
    replace: float = 30.0  # that a new version waits for the answers of the old one

    def __post_init__(self) -> None:
        check_text("domain", self.domain)
        if "/" in self.domain:
            raise ValueError(f"domain: {self.domain!r} is no domain.")
        for name in _BY_DOMAIN:
            if not isinstance(getattr(self, name), Mapping):
                raise wrong(name, "a mapping by domain", getattr(self, name))
        if self.p2p is not None and not isinstance(self.p2p, P2PSettings):
            raise wrong("p2p", "a P2PSettings", self.p2p)
        if self.sandbox not in SANDBOX_WORDS:
            raise ValueError(f"sandbox: {self.sandbox!r} is none of {', '.join(SANDBOX_WORDS)}.")
        for domain, route in self.routing.items():
            if route not in ROUTES:
                raise ValueError(f"routing[{domain!r}]: {route!r} is none of {', '.join(ROUTES)}.")
        for name in ("catalogues", "registries"):
            for domain, url in getattr(self, name).items():
                check_text(f"{name}[{domain!r}]", url)
                parts = urlsplit(url)
                if parts.scheme not in ("http", "https") or not parts.hostname:
                    raise ValueError(f"{name}[{domain!r}]: {url!r} is no http or https URL.")

    def catalogue_of(self, domain: str) -> str:
        """The base URL of a domain's catalogue."""
        return self.catalogues.get(domain, f"https://{domain}").rstrip("/")
