"""What operators do with scripts of connectors, for pages, REST and `manage.py connectors`.

It is checked, done and audited here; the front ends present the sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from msgnode.core.errors import Conflict
from msgnode.models import Connector
from msgnode.scripts import store

from .audit import note

ACTIONS: dict[str, Callable[[Connector, str, str], str]] = {
    "approve": store.approve,
    "pause": lambda connector, *_: store.decide(connector, Connector.Decision.PAUSED),
    "resume": lambda connector, *_: store.decide(connector, Connector.Decision.APPROVED),
    "restart": lambda connector, *_: store.restart(connector),
    "remove": lambda connector, *_: store.remove(connector),
}
"""What can be done with a connector; each function returns the obstacle, if any."""
_DONE = {"restart": "its script is started anew", "remove": "it is removed"}


@transaction.atomic
def add(port: str, values: Mapping[str, Any], actor: str) -> Connector:
    """Add a version of a connector's script, which waits for approval.

    Args:
        port: of the connector.
        values: `source`, `configuration`, `origins`, `secrets`.
        actor: who adds it.

    Raises:
        ValidationError: with a sentence for each value that is wrong.
    """
    if port not in Connector.Port.values:
        ports = ", ".join(Connector.Port.values)
        raise ValidationError({"port": f"There is no port {port[:32]}; there are {ports}."})
    connector = store.add(port, store.checked(values, port), actor)
    after = {"digest": connector.found_digest, "origins": list(values.get("origins") or ())}
    note(actor, "connector.add", connector, {}, after)
    return connector


@transaction.atomic
def set_secret(connector: Connector, name: str, value: str, actor: str) -> str:
    """Store the value of a secret; return what was done, as a sentence.

    Raises:
        Conflict: it cannot be; the description says why.
    """
    if why := store.set_secret(connector, name, value):
        raise Conflict(why)
    note(actor, "connector.secret", connector, {}, {"name": name})
    return f"{connector}: the secret {name} has a new value."


@transaction.atomic
def act(action: str, connector: Connector, actor: str, digest: str = "") -> str:
    """Do what an operator has decided about a connector.

    Args:
        action: one of ACTIONS.
        connector: the connector.
        actor: who has decided it.
        digest: approve: of the version, or its beginning; "" for the newest.

    Returns:
        What was done, as a sentence.

    Raises:
        Conflict: it cannot be done; the description says why.
    """
    before = {"decision": connector.decision, "digest": connector.approved_digest}
    if why := ACTIONS[action](connector, actor, digest):
        raise Conflict(why)
    after = {"decision": connector.decision, "digest": connector.approved_digest}
    note(actor, f"connector.{action}", connector, before, after)
    if action == "approve":
        return f"{connector}: the script {connector.approved_digest[:12]} may run."
    return f"{connector}: {_DONE.get(action) or connector.get_decision_display()}."


def decision_word(connector: Connector) -> str:
    """The decision, and whether another version awaits one."""
    is_other = connector.approved_digest not in ("", connector.found_digest)
    return connector.get_decision_display() + (", another script waits" if is_other else "")
