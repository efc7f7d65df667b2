"""System checks of the node: settings that cannot work are reported before anything starts.

Each topic of the settings yields the identifier of each fault, what is wrong, and what would be
right.

E001 DATA_DIR can be written    E002 DOMAIN is a domain    E003 RESUME is one of its words
E004 limits are positive        E005 limits fit together
E007 PORT is a port             E009 WORKERS is a number of workers
E010 REGISTRY_ACCESS is one of its words       E011 REGISTRY_UNAVAILABLE_CODE is 408 or 500
E012 numbers of the registry are positive      E013 POLICY_TIME_ZONE is a time zone
E014 numbers of the policies are not negative  E015 registries elsewhere have a URL of HTTP
E016 MQTT_URL is one, and has what it needs    E017 numbers of MQTT are positive
E018 DEVICE_WEBHOOKS has what it needs         E019 PUSH_CONTACT is one, and has what it needs
E020 ADMISSION and ADMISSION_DOMAINS name modes of admission
E021 traces have a ratio that is one, and what their endpoint needs
E022 FEDERATION is one of its words, and has what it needs
E024 Celery can keep its tasks in its broker
W001 PING_TIMEOUT is longer than a reader may be behind
W002 bubblewrap works where it is wanted
W004 nothing is set that was a setting of an earlier version
W003 encrypted secrets can be read with the keys in the settings (looks at the database)
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError

from msgnode.bus.ports import LEAST_LEASE
from msgnode.identity import sealed_secrets
from msgnode.sandbox import process
from msgnode.sessions.session import READER_PATIENCE

RESUME_WORDS = ("always", "when-idle", "with-proof")
ADMISSION_MODES = ("anonymous", "identified", "strict")
ADMISSION_MODES_OF_DOMAINS = (*ADMISSION_MODES, "refused")
FEDERATION_MODES = ("off", "listed", "approve", "open")
REGISTRY_ACCESS_WORDS = ("open", "read-open", "account")
_REGISTRY_MAY_BE_ZERO = frozenset({"CLOSE_GRACE", "PURGE_AFTER", "HISTORY_KEPT"})
_LIMITS_MAY_BE_ZERO = frozenset(
    {"GRACE_PERIOD", "DRAIN_SECONDS", "DRAIN_STAGGER", "CLOSED_SESSION_DAYS"}
)

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")

# A pair means: the first must be less than the second, or one frame evicts its receiver.
_ORDER = (("MAX_FRAME_BYTES", "OUTBOX_BYTES"), ("MAX_FRAME_BYTES", "LINK_BYTES"))


@register()
def check_node(**_: Any) -> list[CheckMessage]:
    """All of the node's own checks."""
    topics = (
        *(_data_dir, _removed, _words, _limits, _registries, _policies, _traces),
        *(_mqtt, _webhooks, _push, _federation),
    )
    found = [fault for topic in topics for fault in topic()]
    return [
        (Warning if id_.startswith("W") else Error)(text, hint or None, id=f"msgnode.{id_}")
        for id_, text, hint in found
    ]


@register(Tags.database)
def check_secrets(databases: Any = None, **_: Any) -> list[CheckMessage]:
    """Whether what is encrypted in the database can be read; asked for with the database only."""
    if not databases:
        return []
    try:
        fault = sealed_secrets.fault()
    except DatabaseError:  # not migrated yet
        return []
    return [Warning(fault, id="msgnode.W003")] if fault else []


def _nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _data_dir() -> Iterator[tuple[str, str, str]]:
    place = _nearest_existing(settings.DATA_DIR)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        text = f"DATA_DIR {settings.DATA_DIR} cannot be written."
        yield "E001", text, "Name a directory that belongs to the user who runs the node."


def _removed() -> Iterator[tuple[str, str, str]]:
    yield from (("W004", line, "") for line in settings.REMOVED_SETTINGS)


def _words() -> Iterator[tuple[str, str, str]]:
    if not _DOMAIN.fullmatch(settings.DOMAIN):
        text = f"DOMAIN {settings.DOMAIN!r} is not a domain name."
        yield "E002", text, "A host name without scheme, port or path, such as example.org."
    if settings.RESUME not in RESUME_WORDS:
        yield "E003", f"RESUME is {settings.RESUME!r}.", f"It is one of {', '.join(RESUME_WORDS)}."
    for named, words in (
        *((each, ADMISSION_MODES_OF_DOMAINS) for each in settings.ADMISSION_DOMAINS.values()),
        (settings.ADMISSION, ADMISSION_MODES),
    ):
        if named not in words:
            text = f"ADMISSION or ADMISSION_DOMAINS says {named!r}."
            yield "E020", text, f"It is one of {', '.join(words)}."
    if settings.ADMISSION_DOMAINS.get(settings.DOMAIN) == ADMISSION_MODES_OF_DOMAINS[-1]:
        text = "ADMISSION_DOMAINS refuses the node's own domain."
        yield "E020", text, "The setting is for visitors: name their domains, or * for all others."
    if not 0 < settings.PORT < 65536:
        yield "E007", f"PORT is {settings.PORT}.", "It is 1 to 65535."
    if not 0 < settings.WORKERS <= 256:
        yield "E009", f"WORKERS is {settings.WORKERS}.", "It is 1 to 256."
    if "+cluster://" in settings.CELERY_BROKER_URL:
        text = "Celery cannot keep its tasks in the Redis Cluster of REDIS_URL."
        yield "E024", text, "Set CELERY_BROKER_URL to a single Redis server, or one with Sentinels."


def _limits() -> Iterator[tuple[str, str, str]]:
    limits = settings.NODE
    identity = settings.IDENTITY
    numbers = {name: n for name, n in identity.items() if type(n) in (int, float)}
    for name, value in {**limits, **{f"IDENTITY_{n}": v for n, v in numbers.items()}}.items():
        least = "zero or more" if name in _LIMITS_MAY_BE_ZERO else "more than zero"
        if value < 0 or (value == 0 and name not in _LIMITS_MAY_BE_ZERO) or value != value:
            yield "E004", f"{name} is {value}.", f"It is {least}."
    if 0 < limits["WORKER_TIMEOUT"] < LEAST_LEASE:
        text = f"WORKER_TIMEOUT is {limits['WORKER_TIMEOUT']}."
        hint = (
            f"It is {LEAST_LEASE:g} seconds or more: a worker renews its lease every third "
            "of it, and a busy database may take a second for that."
        )
        yield "E004", text, hint
    for name, value in settings.VISITORS.items():
        if not value >= 0:
            text = f"A limit of visitors, {name}, is {value}."
            yield "E004", text, "It is zero or more."
    for low, high in _ORDER:
        if limits[low] >= limits[high]:
            text = f"{low} ({limits[low]}) is not less than {high} ({limits[high]})."
            yield "E005", text, "A frame of the largest size must fit into the queue."
    if limits["PING_TIMEOUT"] <= READER_PATIENCE:
        text = (
            f"PING_TIMEOUT ({limits['PING_TIMEOUT']}) is not more than the {READER_PATIENCE} "
            "seconds in which a slow reader may catch up."
        )
        hint = "A slow reader answers no ping, and would be closed before it can catch up."
        yield "W001", text, hint


def _registries() -> Iterator[tuple[str, str, str]]:
    """Access, numbers, and where registries elsewhere are."""
    registry = settings.REGISTRY
    if registry["ACCESS"] not in REGISTRY_ACCESS_WORDS:
        text = f"REGISTRY_ACCESS is {registry['ACCESS']!r}."
        yield "E010", text, f"One of {', '.join(REGISTRY_ACCESS_WORDS)}."
    if registry["UNAVAILABLE_CODE"] not in (408, 500):
        text = f"REGISTRY_UNAVAILABLE_CODE is {registry['UNAVAILABLE_CODE']}."
        yield "E011", text, "408 as specified, or 500 for older runtimes."
    for name, value in registry.items():
        is_number = isinstance(value, (int, float))
        if is_number and not (value > 0 or (value == 0 and name in _REGISTRY_MAY_BE_ZERO)):
            least = "zero or more" if name in _REGISTRY_MAY_BE_ZERO else "more than zero"
            hint = f"It is {least}."
            yield "E012", f"REGISTRY_{name} is {value}.", hint
    for name in ("DOMAIN", "GLOBAL"):
        base = urlsplit(registry[f"{name}_URL"])
        if any(base) and not (base.scheme in ("http", "https") and base.hostname):
            hint = "The base URL of a registry, such as https://registry.example.org/v1."
            yield "E015", f"{name}_REGISTRY_URL is {base.geturl()!r}.", hint


def _policies() -> Iterator[tuple[str, str, str]]:
    """The time zone that rules are written in, and how much is kept of decisions."""
    policy = settings.POLICY
    try:
        ZoneInfo(policy["TIME_ZONE"])
    except (OSError, ValueError, KeyError):  # no such zone, or a name that is none
        text = f"POLICY_TIME_ZONE {policy['TIME_ZONE']!r} is not a time zone."
        yield "E013", text, "A name such as UTC or Europe/Berlin."
    for name in ("LOG_SAMPLE", "LOG_DAYS"):
        if not policy[name] >= 0:
            yield "E014", f"POLICY_{name} is {policy[name]}.", "0 or more."


def _traces() -> Iterator[tuple[str, str, str]]:
    """How much is traced, and where it is sent."""
    if not 0 <= settings.TRACING["RATIO"] <= 1:
        text = f"TRACE_SAMPLE_RATIO is {settings.TRACING['RATIO']}."
        yield "E021", text, "Set the fraction of messages to trace, from 0 to 1."
    endpoint = settings.TRACING["ENDPOINT"]
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        hint = "Set the URL of a collector that accepts OTLP over HTTP: http://127.0.0.1:4318"
        yield "E021", f"OTEL_EXPORTER_OTLP_ENDPOINT is {endpoint!r}.", hint
    if endpoint and find_spec("opentelemetry") is None:
        text = "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed."
        yield "E021", text, "Run pip install 'messaging-node[otlp]'."


def _federation() -> Iterator[tuple[str, str, str]]:
    """Its words and numbers, and whether the sandbox of its stubs can be made."""
    if settings.FEDERATION not in FEDERATION_MODES:
        yield (
            "E022",
            f"FEDERATION is {settings.FEDERATION!r}.",
            f"It is one of {', '.join(FEDERATION_MODES)}.",
        )
    if settings.FEDERATION == "off":
        return
    if not process.find_deno():
        text = "FEDERATION is on, but Deno, which runs the protostubs of peers, is not installed."
        hint = "Run pip install 'messaging-node[federation]', or install Deno on this machine."
        yield "E022", text, hint
    wraps = settings.SANDBOX["BUBBLEWRAP"]
    if wraps not in ("auto", "required", "off"):
        yield "E022", f"SANDBOX_BUBBLEWRAP is {wraps!r}.", "It is auto, required or off."
    elif wraps == "required" and not process.can_wrap():
        text = "SANDBOX_BUBBLEWRAP is required, but bubblewrap does not work here."
        yield "E022", text, "Install bubblewrap and allow user namespaces, or set auto."
    elif wraps == "auto" and process.find_deno() and not process.can_wrap():
        hint = "Install bubblewrap and allow user namespaces, or set SANDBOX_BUBBLEWRAP=off."
        yield "W002", "Bubblewrap does not work here: sandboxes lack one layer of isolation.", hint
    for each in _not_networks(settings.FEDERATION_NETWORKS):
        text = f"FEDERATION_NETWORKS names {each!r}."
        yield "E022", text, "Networks, such as 10.1.0.0/16, separated by commas."
    numbers = [*settings.PEERS.items(), *settings.SANDBOX.items()]
    for name, value in numbers:
        if isinstance(value, (int, float)) and not value > 0:
            yield "E022", f"{name} is {value}.", "It is more than zero."


def _mqtt() -> Iterator[tuple[str, str, str]]:
    mqtt = settings.MQTT
    if not mqtt["URL"]:
        return
    try:
        url = urlsplit(mqtt["URL"])
        is_good = url.scheme in ("mqtt", "mqtts") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none
        is_good = False
    if not is_good:
        hint = "Set the broker's URL: mqtt://name:password@broker.example.org:1883, or mqtts://."
        yield "E016", "MQTT_URL is not the URL of a broker.", hint
    for name in ("CA_FILE", "CERT_FILE"):
        if mqtt[name] and not os.access(mqtt[name], os.R_OK):
            text = f"MQTT_{name} {mqtt[name]} cannot be read."
            yield "E016", text, "Name a PEM file that the user who runs the node can read."
    if not mqtt["PREFIX"] or any(mark in mqtt["PREFIX"] for mark in "+#$"):
        text = f"MQTT_PREFIX is {mqtt['PREFIX']!r}."
        yield "E016", text, "Set the prefix of the devices' topics: levels without wildcards."
    if not 0 < mqtt["WINDOW"] <= 65_535:
        yield "E017", f"MQTT_WINDOW is {mqtt['WINDOW']}.", "It is 1 to 65535."
    if not mqtt["MESSAGES_PER_SECOND"] > 0:
        text = f"MQTT_MESSAGES_PER_SECOND is {mqtt['MESSAGES_PER_SECOND']}."
        yield "E017", text, "It is more than zero."


def _webhooks() -> Iterator[tuple[str, str, str]]:
    if settings.DEVICE_WEBHOOKS and not settings.DEVICE_HTTP:
        text = "DEVICE_WEBHOOKS is on, but DEVICE_HTTP is off."
        yield "E018", text, "A webhook belongs to a session over HTTP: set DEVICE_HTTP=true too."
    for each in _not_networks(settings.WEBHOOK_NETWORKS):
        text = f"WEBHOOK_NETWORKS names {each!r}."
        yield "E018", text, "Networks, such as 10.1.0.0/16, separated by commas."


def _push() -> Iterator[tuple[str, str, str]]:
    if not settings.PUSH_CONTACT:
        return
    if not settings.DEVICE_HTTP:
        hint = "A push subscription belongs to a session over HTTP: set DEVICE_HTTP=true too."
        yield "E019", "PUSH_CONTACT is set, but DEVICE_HTTP is off.", hint
    if not settings.PUSH_CONTACT.startswith(("mailto:", "https://")):
        hint = "Set a contact for the push services: mailto:operator@example.org, or https://…"
        yield "E019", f"PUSH_CONTACT is {settings.PUSH_CONTACT!r}.", hint


def _not_networks(texts: Iterable[str]) -> list[str]:
    """Those of the texts that are no networks.

    >>> _not_networks(["10.1.0.0/16", "2001:db8::/32", "10.1.2.3/16", "home"])
    ['10.1.2.3/16', 'home']
    """
    return [each for each in texts if not _is_network(each)]


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True
