"""The rows of connectors: their scripts, secrets, and what they keep. All functions block.

Rules
- A version is a script with all that is approved with it: its configuration, where it may send
  requests, and which secret is for which place. Its digest is of all of this, so that a change of
  any is another version, which waits for approval.
- The value of a secret may be replaced without approval. It is stored encrypted, is shown nowhere,
  and a script gets it only if its version says that it is revealed.
- A version is never changed. The newest MAX_SCRIPTS of a connector are kept.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Length
from django.utils import timezone

from msgnode.core import json_text
from msgnode.core.errors import Conflict, TooMany
from msgnode.identity.encryption import decrypt, encrypt
from msgnode.models import Connector, ConnectorScript, ConnectorSecret, Issuer, KeptEntry
from msgnode.net.http import Network
from msgnode.sandbox import approval
from msgnode.storage.alarms import clear_alarm
from msgnode.storage.control import post

CHANGED = "connectors.changed"
"""The control message for changed rows of connectors."""
RESTART = "connectors.restart"
"""The control message to start the script of a connector anew."""
FORGET = "connectors.forget"
"""The control message to forget the last calls, refusals, log lines and error of a connector."""
FAILED_ALARM = "script-failed"
MAX_SCRIPTS = 50
MAX_SOURCE = 1024 * 1024
MAX_CONFIGURATION = 64 * 1024
MAX_ORIGINS, MAX_SECRETS, MAX_VALUE = 20, 20, 4_000
MAX_ISSUER = 255
MAX_KEYS, MAX_KEPT = 1_000, 1024 * 1024
"""Most entries that a connector keeps, and characters of all of them."""
REVEALED = "*"
"""For a secret, instead of an origin: the script itself gets the value."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a script, as it runs; `values` are of its secrets."""

    digest: str
    source: str
    configuration: dict[str, Any]
    origins: frozenset[str]
    secrets: dict[str, str]
    values: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def revealed(self) -> dict[str, str]:
        """The secrets whose values the script gets."""
        names = {name for name, origin in self.secrets.items() if origin == REVEALED}
        return {name: value for name, value in self.values.items() if name in names}


@dataclass(frozen=True, slots=True)
class ConnectorRow:
    """The row of a connector, as a worker sees it."""

    pk: int
    port: str
    decision: str
    digest: str

    @property
    def is_approved(self) -> bool:
        """Whether its script is to run."""
        return self.decision == Connector.Decision.APPROVED and bool(self.digest)

    @property
    def is_chosen(self) -> bool:
        """Whether the port is the script's; while it is paused nobody else is asked instead."""
        return self.is_approved or self.decision == Connector.Decision.PAUSED


def read() -> list[ConnectorRow]:
    """All connectors."""
    found = Connector.objects.values_list("pk", "port", "decision", "approved_digest")
    return [ConnectorRow(*row) for row in found]


def version_of(pk: int, digest: str) -> Version | None:
    """A version of a connector's script, with the values of its secrets."""
    row = ConnectorScript.objects.filter(connector=pk, digest=digest).first()
    if row is None:
        return None
    sealed = ConnectorSecret.objects.filter(connector=pk, name__in=row.secrets)
    values = {name: decrypt(text) for name, text in sealed.values_list("name", "sealed")}
    return Version(
        row.digest, row.source, row.configuration, frozenset(row.origins), row.secrets, values
    )


def issuer() -> str:
    """The issuer of the identity provider that is a script, "" if there is none."""
    row = Connector.objects.filter(port=Connector.Port.IDENTITY).first()
    if (
        row is None
        or not ConnectorRow(row.pk, row.port, row.decision, row.approved_digest).is_chosen
    ):
        return ""
    found = row.scripts.filter(digest=row.approved_digest)
    configuration = found.values_list("configuration", flat=True).first() or {}
    return str(configuration.get("issuer", ""))


# --- what an operator does ------------------------------------------------------------------------


def checked(values: Mapping[str, Any], port: str = "") -> dict[str, Any]:
    """The parts of a version as they are stored.

    Args:
        port: of the connector.
        values: `source`, `configuration`, `origins`, `secrets`.

    Raises:
        ValidationError: with a sentence for each that is wrong.
    """
    origins = [_normal(each) for each in values.get("origins") or ()]
    secrets = {name: _normal(each) for name, each in (values.get("secrets") or {}).items()}
    source, configuration = values.get("source") or "", values.get("configuration") or {}
    faults: dict[str, str] = {}
    if not source.strip() or len(source.encode()) > MAX_SOURCE:
        faults["source"] = f"It must be a script of at most {MAX_SOURCE:,} bytes."
    if len(msgspec.json.encode(configuration)) > MAX_CONFIGURATION:
        faults["configuration"] = f"It has more than {MAX_CONFIGURATION:,} bytes."
    elif not isinstance(configuration, dict):
        faults["configuration"] = "It must be an object."
    elif port == Connector.Port.IDENTITY and (why := _identity_fault(configuration)):
        faults["configuration"] = why
    wrong = [f"{each}: {why}" for each in origins if (why := origin_fault(each))]
    if wrong or len(origins) > MAX_ORIGINS:
        faults["origins"] = " ".join(wrong) or f"There are more than {MAX_ORIGINS}."
    for name, origin in secrets.items():
        if not _NAME.fullmatch(name):
            faults["secrets"] = f"{name[:64]}: a name has letters a-z, digits and hyphens."
        elif origin not in (*origins, REVEALED):
            faults["secrets"] = f"{name}: {origin} is none of the origins, and not {REVEALED}."
    if len(secrets) > MAX_SECRETS:
        faults["secrets"] = f"There are more than {MAX_SECRETS}."
    if faults:
        raise ValidationError(faults)
    return {
        "source": source,
        "configuration": configuration,
        "origins": sorted(set(origins)),
        "secrets": secrets,
    }


def _identity_fault(configuration: Mapping[str, Any]) -> str:
    """What an identity provider's configuration lacks, "" if nothing."""
    issuer, clients = configuration.get("issuer"), configuration.get("clientIds")
    if not isinstance(issuer, str) or not 0 < len(issuer) <= MAX_ISSUER:
        return "`issuer` must be the `iss` of its tokens."
    if not isinstance(clients, list) or not all(isinstance(each, str) for each in clients):
        return "`clientIds` must be a list: the `aud` of the tokens that are taken."
    if Issuer.objects.filter(url=issuer, kind=Issuer.Kind.EXTERNAL).exists():
        return f"The issuer {issuer} is among the issuers already."
    return ""


def _normal(origin: str) -> str:
    """An origin as it is compared; what is none stays as it is."""
    origin = origin.rstrip("/")
    return origin if origin_fault(origin) else origin_of(origin)


def digest_of(parts: Mapping[str, Any]) -> str:
    """The digest of a version: of its parts, as `checked` returns them."""
    return hashlib.sha256(msgspec.json.encode(dict(parts), order="deterministic")).hexdigest()


def origin_fault(origin: str) -> str:
    """Why requests cannot lead there, "" if they can.

    >>> origin_fault("https://api.example.org"), origin_fault("http://api.example.org/v1")
    ('', 'an origin has no path.')
    """
    try:
        parts = urlsplit(origin)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is no URL."
    if parts.scheme not in ("https", "http") or not host:
        return "it must begin with https:// and name a host."
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        return "an origin has no path."
    return ""


def origin_of(url: str) -> str:
    """The origin of a URL, "" if it has none.

    >>> origin_of("https://API.example.org:443/v1?a=b"), origin_of("https://a@b.example/")
    ('https://api.example.org', '')
    """
    with suppress(ValueError):
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
        usual = {"https": 443, "http": 80}.get(parts.scheme)
        if usual is not None and host and parts.username is None and parts.password is None:
            shown = f"[{host}]" if ":" in host else host
            return f"{parts.scheme}://{shown}" + (f":{port}" if port not in (None, usual) else "")
    return ""


def networks_of(origin: str) -> list[Network]:
    """The networks that are not public in which an approved origin may be.

    An address that is named as such is what the operator has approved; where a name leads is what
    somebody else says, so it counts in FEDERATION_NETWORKS only.
    """
    with suppress(ValueError):
        return [ipaddress.ip_network(urlsplit(origin).hostname or "")]
    return [ipaddress.ip_network(each) for each in settings.FEDERATION_NETWORKS]


@transaction.atomic
def add(port: str, parts: Mapping[str, Any], by: str) -> Connector:
    """Add a version of a connector's script, which waits for approval.

    Args:
        port: the connector's.
        parts: of the version, checked.
        by: who adds it.
    """
    row, _ = Connector.objects.get_or_create(port=port)
    row = Connector.objects.select_for_update().get(pk=row.pk)
    row.found_digest = digest_of(parts)
    defaults = {**parts, "added_by": by[:150]}
    version, is_new = row.scripts.get_or_create(digest=row.found_digest, defaults=defaults)
    if not is_new:
        version.found_at = timezone.now()
        version.save(update_fields=["found_at"])
    row.save(update_fields=["found_digest"])
    others = row.scripts.exclude(digest__in=(row.approved_digest, row.found_digest))
    beyond = list(others.values_list("pk", flat=True)[MAX_SCRIPTS - 2 :])
    row.scripts.filter(pk__in=beyond).delete()
    post(CHANGED)
    return row


def set_secret(connector: Connector, name: str, value: str) -> str:
    """Store the value of a secret; return the obstacle, if any."""
    if not any(name in secrets for secrets in connector.scripts.values_list("secrets", flat=True)):
        return f"{connector}: no version of its script has a secret {name[:64]}."
    if not value or len(value) > MAX_VALUE or not value.isprintable():
        return f"{name}: a value has 1 to {MAX_VALUE} printable characters."
    ConnectorSecret.objects.update_or_create(
        connector=connector, name=name, defaults={"sealed": encrypt(value)}
    )
    if connector.decision == Connector.Decision.APPROVED:
        post(RESTART, port=connector.port)
    return ""


def approve(connector: Connector, by: str, digest: str = "") -> str:
    """Have a version run; return the obstacle, if any.

    Args: connector: the connector. by: who approves it. digest: of the version, or its beginning;
        "" for the newest.
    """
    if not connector.found_digest:
        return f"{connector}: it has no script yet."
    chosen, which = approval.chosen(connector, connector.scripts.all(), digest)
    if not chosen:
        return f"{connector}: {which} {digest[:64]}; the newest is {connector.found_digest}."
    version = connector.scripts.get(digest=chosen)
    have = set(connector.values.values_list("name", flat=True))
    if missing := sorted(set(version.secrets) - have):
        return f"{connector}: it lacks the value of {', '.join(missing)}."
    was = connector.approved_digest if connector.decision == connector.Decision.APPROVED else ""
    approval.approve(connector, chosen, by)
    clear_alarm(FAILED_ALARM, connector.port)
    post(CHANGED)
    if was == chosen:
        post(RESTART, port=connector.port)
    return ""


def decide(connector: Connector, decision: str) -> str:
    """Pause or resume a connector; return the obstacle, if any."""
    if decision == Connector.Decision.APPROVED and not connector.approved_digest:
        return f"{connector}: no script of it was approved yet: approve one."
    connector.decision = decision
    connector.save(update_fields=["decision"])
    post(CHANGED)
    return ""


def restart(connector: Connector) -> str:
    """Start the script anew; return the obstacle, if any."""
    if connector.decision != Connector.Decision.APPROVED:
        return f"{connector}: its script does not run: {connector.get_decision_display()}."
    post(RESTART, port=connector.port)
    return ""


def remove(connector: Connector) -> str:
    """Delete a connector and all that is its; the port is again what the settings name."""
    clear_alarm(FAILED_ALARM, connector.port)
    connector.delete()
    post(CHANGED)
    return ""


# --- what a worker says ---------------------------------------------------------------------------


def note_state(pk: int, state: str, error: str) -> None:
    """Store how a connector is; if there are several workers, as the last of them said."""
    Connector.objects.filter(pk=pk).update(
        state=state, state_at=timezone.now(), last_error=error[:300]
    )


def note_figures(pk: int, figures: dict[str, Any]) -> None:
    """Store its calls of the last seconds, whatever those who call have written."""
    told = json_text.storable(figures)
    Connector.objects.filter(pk=pk).update(figures=told, figures_at=timezone.now())


def take_back(row: ConnectorRow, digest: str) -> None:
    """Revert to the version approved before, because the last one cannot be loaded."""
    found = Connector.objects.filter(pk=row.pk, approved_digest=row.digest)
    if found.update(approved_digest=digest):
        post(CHANGED)


# --- what a person may ask for --------------------------------------------------------------------


def shown_of(texts: Collection[str]) -> dict[str, list[str]]:
    """What the rows show of the last calls, refusals and log lines that has one of these texts.

    Args:
        texts: names of a person.

    Returns:
        By port, each such call (as JSON), refusal, line, and the last error.
    """
    found: dict[str, list[str]] = {}
    for row in Connector.objects.all():
        told = row.figures or {}
        calls = [json.dumps(each, ensure_ascii=False) for each in told.get("recorded", ())]
        shown = [*calls, *told.get("refusals", ()), *told.get("log", ()), row.last_error]
        if naming := [each for each in shown if _has_one(each, texts)]:
            found[row.port] = naming
    return found


def _has_one(shown: str, texts: Collection[str]) -> bool:
    """Whether it has one of these texts, as it is or as a URL has it."""
    return any(text in form for form in (shown, unquote(shown)) for text in texts)


def forget(ports: Collection[str]) -> int:
    """Delete what the rows of these ports show, and have the workers do so; return how many."""
    for port in ports:
        post(FORGET, port=port)
    return Connector.objects.filter(port__in=ports).update(figures=None, last_error="")


# --- what a script keeps --------------------------------------------------------------------------


def kept(pk: int, action: str, key: str, value: str, version: int | None) -> Any:
    """Read or change what a connector keeps.

    Args:
        pk: of the connector.
        action: get, put, delete or list.
        key: of the entry; of `list`, how keys begin.
        value: to put.
        version: that the entry must still have, 0 for none; None for any.

    Raises:
        Conflict: it has another version.
        TooMany: there is no room.
    """
    mine = KeptEntry.objects.filter(connector=pk)
    if action == "list":
        return list(mine.filter(key__startswith=key).values_list("key", flat=True)[:MAX_KEYS])
    with transaction.atomic():
        if action != "get":
            Connector.objects.select_for_update().get(pk=pk)  # one at a time, for the bounds
        entry = mine.filter(key=key).first()
        if action == "get":
            return None if entry is None else {"value": entry.value, "version": entry.version}
        if version is not None and version != (entry.version if entry is not None else 0):
            raise Conflict("The entry has another version.")
        if action == "delete":
            if entry is not None:
                entry.delete()
            return None
        entry = entry or KeptEntry(connector_id=pk, key=key, version=0)
        others = mine.exclude(key=key).aggregate(
            number=Count("pk"), size=Sum(Length("value") + Length("key"))
        )
        size = (others["size"] or 0) + len(key) + len(value)
        if others["number"] >= MAX_KEYS or size > MAX_KEPT:
            raise TooMany("The connector keeps as much as it may.")
        entry.value, entry.version = value, entry.version + 1
        entry.save()
        return {"version": entry.version}
