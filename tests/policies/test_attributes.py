"""Attributes: what they are made of, and that nothing a sender writes stands in for a fact."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from msgnode.core.decision import Direction
from msgnode.core.errors import Unavailable
from msgnode.core.identity import Identity, Speaker
from policies.authoring.cases import facts_of
from policies.engine.attributes import (
    Facts,
    Surroundings,
    Undetermined,
    kind_of_message,
    number_form,
    text_form,
)
from policies.engine.language import CannotEvaluate


def facts(**case):
    return facts_of(case)


@pytest.mark.parametrize(
    ("sender", "to", "kind"),
    [
        ("hyperty://a.com/1", "domain://registry.b.com/", "registration"),
        ("domain://registry.b.com", "hyperty-runtime://a/1/sm", "registration"),
        ("r://a/1/address-allocation", "domain://a/address-allocation/", "addressAllocation"),
        ("r://a/1", "domain://a/object-address-allocation", "objectAllocation"),
        ("r://a/1/discovery/", "domain://a/x", "discovery"),
        ("r://a/1/graph-connector", "global://registry", "globalRegistry"),
        ("r://a/1", "domain://a/idm", "identityManagement"),
        ("r://a/1/ua", "domain://a/sm", "p2pConnection"),
        ("connection://b/1/subscription", "runtime://b/2/p2phandler/1", "p2pConnection"),
        ("hyperty-runtime://b/2/p2phandler/1", "runtime://b/p2prequester/1", "p2pConnection"),
        ("hyperty://b/p2phandler/1", "comm://b/p2prequester/1", None),
        ("r://a/1/sm", "domain://a/sm", "dataSync"),
        ("hyperty://a.com/1", "hyperty://b.com/1", None),
        ("r://a/1", "domain://a/address-allocation", None),  # both ends, not one
        ("r://a/1/smX", "domain://a/1", None),
        ("r://a/1", "domain://a/smX", None),
    ],
)
def test_kind_of_message(sender, to, kind):
    assert kind_of_message(sender, to) == kind


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("srcSPDomain", "msg-node.a.com:8443"),
        ("dstSPDomain", "b.com"),
        ("srcScheme", "hyperty-runtime"),
        ("dstScheme", "hyperty"),
        ("dstHyperty", "hyperty://b.com/2"),
        ("srcHyperty", None),
        ("srcRuntime", "hyperty-runtime://msg-node.a.com:8443/1"),
        ("actionType", "create"),
        ("body.value.deep", 7),
        ("body.value.deep.deeper", None),
        ("direction", "in"),
        ("weekday", "wednesday"),
        ("date", "2017-03-15"),
        ("time", "12:00:00"),
        ("srcUsername", None),
        ("rate.msgTo.minute", None),
    ],
)
def test_value_of(name, value):
    message = {
        **{"type": "CREATE", "from": "hyperty-runtime://msg-node.a.com:8443/1/x"},
        **{"to": "hyperty://b.com/2/y", "body": {"value": {"deep": 7}}},
    }
    assert facts(msg=message)[name] == value


@pytest.mark.parametrize(
    ("username", "idp", "domain"),
    [
        ("alice@a.example", "idp.example", "a.example"),
        ("alice@b.example@A.Example", "idp.example", "a.example"),  # the last is the provider's
        ("alice", "IdP.example", "idp.example"),
        ("", "IdP.example", "idp.example"),
        ("", "", None),
    ],
)
def test_the_domain_of_an_identity_is_what_follows_its_last_at_sign(username, idp, domain):
    message = facts().message
    identity = Identity(issuer=idp, subject="", username=username, idp_domain=idp)
    told = Facts(message, Speaker("", "", identity=identity), Direction.IN, "", Surroundings())
    assert told["srcIDPDomain"] == domain


def test_what_a_sender_claims_of_authorisation_is_no_fact():
    assert facts(msg={"body": {"auth": True}})["auth"] is None


@pytest.mark.parametrize(
    ("value", "number"),
    [(3, 3), (1.5, 1.5), ("1e9", 1e9), ("-2", -2), ([1, 2], 2), ((), 0)],
)
def test_number_of(value, number):
    assert number_form(value) == number


def test_an_absent_value_has_no_place_in_any_order():
    assert math.isnan(number_form(None))


@pytest.mark.parametrize("value", ["abc", "", "1_000", "inf", "nan", "1e999", " 5", True, {}])
def test_what_is_no_number_cannot_be_told(value):
    with pytest.raises(CannotEvaluate):
        bool(number_form(value) > 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (1.0, "1"),
        (1.5, "1.5"),
        (None, None),
        ({"a": 1}, ()),
        (["a", 1, None, {"b": 1}], ("a", "1")),
    ],
)
def test_text_of(value, text):
    assert text_form(value) == text


def test_a_body_too_deep_to_read_cannot_be_told_and_harms_nothing():
    case = facts()
    case.message.body = b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(CannotEvaluate):
        bool(case["=bodyValue"] == "x")


@pytest.mark.parametrize(
    "ask",
    [
        lambda u: u == 1, lambda u: u == 1, lambda u: u != 1, lambda u: u > 1, lambda u: u <= 1,
        lambda u: u in {1}, lambda u: u in (1,), lambda u: 1 in u, lambda u: 0 + u, lambda u: u + 1,
        lambda u: u.startswith("x"), lambda u: u.endswith("x"), lambda u: list(u), lambda u: not u,
    ],
)  # fmt: skip
def test_every_question_about_an_untold_value_fails(ask):
    with pytest.raises(CannotEvaluate):
        ask(Undetermined("why"))


def test_the_runtime_of_each_end_is_its_own():
    told = facts(msg={"from": "runtime://a.com/1/sm", "to": "runtime://b.com/2/sm"})
    assert (told["srcRuntime"], told["dstRuntime"]) == ("runtime://a.com/1", "runtime://b.com/2")


@pytest.mark.parametrize("type_", ["subscribe", "unsubscribe"])
def test_what_is_subscribed_is_told_of_both_ends_of_a_subscription(type_):
    body = {"resources": ["comm://d/1", "comm://d/1"], "resource": "comm://d/2"}
    told = facts(msg={"type": type_, "body": body})
    assert told["subscribeTo"] == ["comm://d/2", "comm://d/1"]
    assert facts(msg={"type": "create", "body": body})["subscribeTo"] is None


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("actionType", "CREATE", "create"),
        ("weekday", "Monday", "Monday"),
        ("msgTo", "Hyperty://D", "Hyperty://D"),
        ("srcScheme", 5, "5"),
        ("msgId", 7, 7),
        ("resource", ["A"], ["A"]),
        ("msgTo", None, None),
    ],
)
def test_a_given_value_is_taken_in_the_form_of_its_attribute(name, value, taken):
    assert facts(pip={name: value})[name] == taken


def test_what_could_not_be_had_says_so_in_the_words_of_who_was_asked():
    def look_up(name, _facts):
        raise Unavailable("The registry does not answer.")

    case = facts()
    case.surroundings = Surroundings(look_up=look_up)
    with pytest.raises(CannotEvaluate, match=r"^The registry does not answer\.$"):
        hash(case["dstUsername"])
    with pytest.raises(CannotEvaluate, match="there is no attribute 'colour'"):
        hash(case["colour"])


def test_what_is_no_number_is_told_in_part():
    with pytest.raises(CannotEvaluate, match=f"^'{'x' * 60}' is not a number$"):
        bool(number_form("x" * 100) > 1)


@pytest.mark.parametrize(
    ("text", "scheme", "domain"),
    [
        ("hyperty://a.example/1", "hyperty", "a.example"),
        ("hyperty://a.example/1", "hyperty", "a.example"),
        ("a.example", "https", "a.example"),
        (".A.example", "https", "a.example"),
        ("X.example.", "https", "x.example."),
        ("hyperty://xa.example/1", "hyperty", "xa.example"),
    ],
)
def test_scheme_and_domain_of_an_end(text, scheme, domain):
    told = facts(msg={"to": text, "from": text})
    assert (told["dstScheme"], told["srcScheme"]) == (scheme, scheme)
    assert (told["dstSPDomain"], told["srcSPDomain"]) == (domain, domain)


@pytest.mark.parametrize(
    ("text", "hyperty"),
    [
        ("hyperty://d/1/a/b", "hyperty://d/1"),
        ("hyperty://d/1", "hyperty://d/1"),
        ("hyperty://d/X1/a", "hyperty://d/X1"),
        ("comm://d/1", None),
    ],
)
def test_the_hyperty_of_an_end_has_the_first_part_of_its_path(text, hyperty):
    told = facts(msg={"to": text, "from": text})
    assert (told["dstHyperty"], told["hyperty"], told["srcHyperty"]) == (hyperty,) * 3


@pytest.mark.parametrize("key", ["resource", "resources", "subscribe", "unsubscribe"])
@pytest.mark.parametrize("type_", ["subscribe", "unsubscribe"])
def test_addresses_are_found_under_each_of_the_fields_keys(key, type_):
    told = facts(msg={"type": type_, "body": {key: ["comm://d/1", 5], "other": "x"}})
    assert told["subscribeTo"] == ["comm://d/1"]


def speaking(identity=None, runtime="", look_up=None, message=None):
    """Facts of a message of this speaker, with all that is looked up said again."""
    read = facts(msg=message or {}).message
    around = Surroundings(
        look_up=look_up or (lambda name, of: (name, of.to)), node={"domain": "d", "port": 5}
    )
    return Facts(read, Speaker("s", runtime, identity=identity), Direction.IN, read.recipients[0],
                 around)  # fmt: skip


def test_an_identity_is_told_by_its_parts():
    known = Identity("https://idp", "subject", "alice@a.example", groups=("staff", "all"))
    told = speaking(known)
    assert (told["srcUsername"], told["srcIDP"]) == ("alice@a.example", "https://idp")
    assert told["srcGroups"] == ("staff", "all")
    nobody, nameless = speaking(), speaking(Identity("", "subject"))
    for name in ("srcUsername", "srcIDP", "srcGroups"):
        assert nobody[name] is nameless[name] is None


@pytest.mark.parametrize(
    ("runtime", "sender", "told"),
    [
        ("runtime://d/9", "hyperty://d/1", "runtime://d/9"),
        ("", "runtime://d/1/sm", "runtime://d/1"),
        ("", "hyperty-runtime://d/1", "hyperty-runtime://d/1"),
        ("", "hyperty://d/1", ("srcRuntime", "hyperty://d/2")),
    ],
)
def test_the_runtime_of_the_sender_is_that_of_its_session_or_of_its_address(runtime, sender, told):
    case = speaking(runtime=runtime, message={"from": sender, "to": "hyperty://d/2"})
    assert case["srcRuntime"] == told
    assert case["dstRuntime"] == ("dstRuntime", "hyperty://d/2")


@pytest.mark.parametrize(
    "name", ["dstUsername", "userRegistries", "addrAllastMin", "peer", "peerWay"]
)
def test_what_the_message_does_not_say_is_looked_up_by_its_name(name):
    assert speaking(message={"to": "hyperty://d/2"})[name] == (name, "hyperty://d/2")
    assert speaking(message={"to": "hyperty://d/2"})["rate.msgTo.minute"] == (
        *("rate.msgTo.minute", "hyperty://d/2"),
    )


def test_what_the_node_is_is_told_by_its_settings():
    case = speaking()
    assert (case["domain"], case["port"], case["useSSL"]) == ("d", 5, None)


@pytest.mark.parametrize("id_", [1, "x", 1.5])
def test_the_id_of_a_message_is_told_as_it_was_said(id_):
    assert facts(msg={"id": id_})["msgId"] == id_
    without = facts()
    without.message.id = b""
    assert without["msgId"] is None


def test_the_clock_of_a_message_stands_still():
    times = [datetime(2026, 1, day, 23, 59, 59 - day, tzinfo=UTC) for day in (5, 6)]
    message = facts().message
    around = Surroundings(now=lambda: times.pop(0))
    case = Facts(message, Speaker("", ""), Direction.IN, "b", around)
    assert (case["date"], case["time"], case["weekday"]) == ("2026-01-05", "23:59:54", "monday")
    assert case["#time"] == 24 * 3600 - 6
    assert len(times) == 1
    assert case["date"] == "2026-01-05"


@pytest.mark.parametrize(
    ("name", "number"),
    [("sumOf msgId resource", 9), ("sumOf msgId", 7), ("sumOf msgId valueNumber", None)],
)
def test_a_sum_is_that_of_its_terms_and_absent_where_one_is(name, number):
    told = facts(msg={"id": 7, "body": {"resource": ["a", "b"]}})[name]
    assert told == number
