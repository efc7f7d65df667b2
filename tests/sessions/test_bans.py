"""Bans as a snapshot: whom they meet, and from when to when."""

from __future__ import annotations

import pytest

from msgnode.core.identity import Identity, Speaker
from msgnode.sessions.bans import Ban, BanList, network_fault

NOW = 1000.0
ALICE = "runtime://localhost/alice"


def met(ban: Ban, runtime_url: str = ALICE, source: str = "", subject: str = "") -> bool:
    identity = Identity("https://idp", subject, username="alice@example.org") if subject else None
    speaker = Speaker("", runtime_url, remote_address=source, identity=identity)
    return BanList([ban]).of_session(runtime_url, speaker, NOW) is ban


@pytest.mark.parametrize(
    ("ban", "who", "is_met"),
    [
        (Ban("runtime", ALICE), {}, True),
        (Ban("runtime", ALICE), {"runtime_url": "hyperty-runtime://localhost/alice"}, True),
        (Ban("runtime", ALICE), {"runtime_url": ALICE + "2"}, False),
        (Ban("runtime", ALICE, until=NOW + 1), {}, True),
        (Ban("runtime", ALICE, until=NOW), {}, False),
        (Ban("source", "192.0.2.1"), {"source": "192.0.2.1"}, True),
        (Ban("source", "192.0.2.1"), {"source": "::ffff:192.0.2.1"}, True),
        (Ban("source", "192.0.2.0/24"), {"source": "192.0.2.77"}, True),
        (Ban("source", "192.0.2.0/24"), {"source": "192.0.3.1"}, False),
        (Ban("source", "192.0.2.0/24"), {"source": ""}, False),
        (Ban("source", "192.0.2.0/24"), {"source": "2001:db8::1"}, False),
        (Ban("source", "2001:db8::/32"), {"source": "2001:db8::1"}, True),
        (Ban("source", "192.0.2.1", until=NOW), {"source": "192.0.2.1"}, False),
        (Ban("subject", "1234"), {"subject": "1234"}, True),
        (Ban("subject", "alice@example.org"), {"subject": "1234"}, True),
        (Ban("subject", "1234"), {"subject": "12345"}, False),
        (Ban("subject", ""), {}, False),
    ],
)
def test_a_ban_meets_whom_it_names(ban, who, is_met):
    assert met(ban, **who) is is_met


def test_a_ban_of_a_domain_meets_its_runtimes_and_not_its_node():
    ban = BanList([Ban("domain", "b.example")])
    for url in ("runtime://b.example/1", "hyperty-runtime://B.example/1"):
        assert ban.of_session(url, Speaker("", url), NOW)
        assert ban.of_session(url, Speaker("", url, peer="b.example"), NOW) is None
    for url in ("runtime://localhost/1", "runtime://c.b.example/1", "runtime:/b.example"):
        assert ban.of_session(url, Speaker("", url), NOW) is None


def test_only_what_is_new_ends_sessions():
    first, second = Ban("runtime", ALICE), Ban("source", "192.0.2.1")
    assert not BanList([first]).beyond(BanList([first, second]))
    added = BanList([first, second]).beyond(BanList([first]))
    assert added.of_source("192.0.2.1", NOW) is second
    assert added.of_session(ALICE, Speaker("", ALICE), NOW) is None


def test_no_bans_cost_nothing_and_meet_nobody():
    assert BanList().of_session(ALICE, Speaker("", ALICE), NOW) is None


@pytest.mark.parametrize(
    "text", ["192.0.2.1", "192.0.2.0/24", "192.0.2.7/24", "::1", "2001:db8::/32"]
)
def test_addresses_and_networks_are_taken(text):
    assert network_fault(text) == ""


@pytest.mark.parametrize("text", ["", "192.0.2", "192.0.2.1/33", "localhost", "*"])
def test_other_texts_are_not(text):
    assert network_fault(text)
