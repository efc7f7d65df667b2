"""Each connector tells what stands behind it who asks; what the node does itself, nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from msgnode.bus.ports import Component, Listener, NoPolicies
from msgnode.bus.replies import Replies
from msgnode.connectors.asking import ASKING
from msgnode.connectors.domain_registry import DomainRegistryConnector
from msgnode.connectors.global_registry import GlobalRegistryConnector
from msgnode.connectors.identity import IdentityConnector, Logins
from msgnode.core import messages
from msgnode.qos.component import QosConnector
from tests.fakes import FakeCaller, FakeSession

NOBODY = cast(Any, None)
FREE = Logins(NOBODY, NOBODY, lambda _: None)


class Behind:
    """What is asked, by any method."""

    def __init__(self) -> None:
        self.asking: list[Listener | None] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def asked(*_: Any) -> Any:
            self.asking.append(ASKING.get())
            return {"code": 200}

        return asked


@pytest.mark.parametrize(
    ("make", "body"),
    [
        (lambda it: DomainRegistryConnector("d", it, NOBODY, NOBODY, 0, NOBODY),
         b'{"resource":"hyperty://d/1"}'),
        (lambda it: GlobalRegistryConnector(it, 5), b'{"guid":"g"}'),
        (lambda it: IdentityConnector("d", it, NOBODY, FREE, NOBODY), b'{"resource":"/jwks"}'),
        (lambda it: QosConnector("d", lambda: it, "", NOBODY, NOBODY),
         b'{"resource":"/resources"}'),
    ],
    ids=["domain registry", "global registry", "identity", "qos"],
)  # fmt: skip
async def test_what_stands_behind_a_connector_learns_who_asks_it(
    make: Callable[[Behind], Component], body: bytes
) -> None:
    behind, session, caller = Behind(), FakeSession("runtime://d/1"), FakeCaller()
    connector = make(behind)
    frame = b'{"id":1,"type":"read","from":"hyperty://d/1","to":"%b","body":%b}' % (
        connector.addresses[0].encode(), body,
    )  # fmt: skip
    Replies(NoPolicies(), 5.0).ask(connector, messages.parse(frame), session, caller)
    await asyncio.wait_for(caller.answered.wait(), 5.0)
    assert caller.answers[0]["body"]["code"] == 200
    assert behind.asking == [session]
    assert ASKING.get() is None
