"""What messages ask of the domain registry: docs/reference/registry.md, cases 19-21
and 26-28."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.connectors import identity_requests
from msgnode.connectors.global_registry import GlobalRegistryConnector
from msgnode.connectors.registry_requests import (
    Change,
    Find,
    Refresh,
    Remove,
    request_of,
)
from msgnode.connectors.remote_registry import Call, call_of
from msgnode.core.errors import BadMessage
from registry.api import Kind, Search

HYPERTY = "hyperty://d/1"
HYPERTY_BODY = {"descriptor": "c", "expires": 3600, "resources": ["chat"], "dataSchemes": ["comm"],
                "status": "live", "runtime": "runtime://d/r1"}  # fmt: skip
OBJECT_BODY = {"name": "n", "schema": "s", "reporter": HYPERTY, "expires": 3600,
               "resources": ["chat"], "dataSchemes": ["comm"], "status": "live",
               "runtime": "runtime://d/r1"}  # fmt: skip


def asked(type_: str, **body: Any) -> Any:
    return request_of(type_, body, "d")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (
            {"resource": "user://google.com/a@b.c"},
            "/hyperty/user/user%3A%2F%2Fgoogle.com%2Fa%40b.c",
        ),
        ({"resource": "user-guid://g1"}, "/hyperty/guid/user-guid%3A%2F%2Fg1"),
        ({"resource": "/hyperty/idp-identifier/a@b.c"}, "/hyperty/email/a%40b.c"),
        (
            {
                "resource": "/hyperty/idp-identifier/a@b.c",
                "criteria": {"resources": ["chat"], "dataSchemes": ["comm"]},
            },
            "/hyperty/email/a%40b.c/hyperty?resources=chat&dataSchemes=comm",
        ),
        (
            {"resource": "user://d/a", "criteria": {"dataSchemes": ["x"], "resources": ["a", "b"]}},
            "/hyperty/user/user%3A%2F%2Fd%2Fa/hyperty?resources=a,b&dataSchemes=x",
        ),
        ({"resource": HYPERTY}, "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
        ({"resource": "comm://d/1"}, "/hyperty/dataobject/url/comm%3A%2F%2Fd%2F1"),
        ({"resource": "myChat"}, "/hyperty/dataobject/name/myChat"),
        (
            {"resource": "myChat", "criteria": {"resources": ["chat"]}},
            "/hyperty/dataobject/name/myChat/do?resources=chat",
        ),
        (
            {"resource": "/comm", "criteria": {"reporter": HYPERTY}},
            "/hyperty/dataobject/reporter/hyperty%3A%2F%2Fd%2F1",
        ),
        (
            {"resource": "/comm", "criteria": {"reporter": HYPERTY, "resources": ["chat"]}},
            "/hyperty/dataobject/reporter/hyperty%3A%2F%2Fd%2F1/do?resources=chat",
        ),
        ({"resource": HYPERTY, "criteria": {}}, "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
        ({"resource": HYPERTY, "criteria": None}, "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
    ],
)
def test_case_19_a_read_is_this_call(body: dict[str, Any], path: str) -> None:
    assert call_of(asked("read", **body)) == Call("GET", path)


@pytest.mark.parametrize(
    ("type_", "body", "call"),
    [
        (
            "create",
            {"value": {"user": "alice@d", "url": HYPERTY, **HYPERTY_BODY, "x": 1}},
            Call("PUT", "/hyperty/user/alice%40d/hyperty%3A%2F%2Fd%2F1", HYPERTY_BODY),
        ),
        (
            "create",
            {"value": {"url": "comm://d/1", **OBJECT_BODY, "startingTime": "now"}},
            Call(
                "PUT",
                "/hyperty/dataobject/comm%3A%2F%2Fd%2F1",
                OBJECT_BODY | {"url": "comm://d/1"},
            ),
        ),
        ("update", {"resource": HYPERTY}, Call("PUT", "/hyperty/url/hyperty%3A%2F%2Fd%2F1", {})),
        (
            "update",
            {"resource": "comm://d/1"},
            Call("PUT", "/dataobject/url/comm%3A%2F%2Fd%2F1", {}),
        ),
        (
            "update",
            {"resource": HYPERTY, "value": {"status": "live", "user": "a", "guid": "g"}},
            Call("PUT", "/hyperty/url/hyperty%3A%2F%2Fd%2F1", {"status": "live"}),
        ),
        (
            "update",
            {"resource": "comm://d/1", "value": {"status": "live", "p2pHandler": "x"}},
            Call(
                "PUT",
                "/dataobject/url/comm%3A%2F%2Fd%2F1",
                {"status": "live", "p2pHandler": "x"},
            ),
        ),
        (
            "delete",
            {"value": {"user": "alice@d", "url": HYPERTY}},
            Call("DELETE", "/hyperty/user/alice%40d/hyperty%3A%2F%2Fd%2F1"),
        ),
        (
            "delete",
            {"value": {"url": "comm://d/1", "name": "n"}},
            Call("PUT", "/dataobject/url/comm%3A%2F%2Fd%2F1", {"status": "disconnected"}),
        ),
    ],
)
def test_case_19_a_change_is_this_call(type_: str, body: dict[str, Any], call: Call) -> None:
    assert call_of(request_of(type_, body, "d")) == call


@pytest.mark.parametrize(
    ("resource", "search"),
    [
        ("/hyperty/user/user://d/alice", Search(Kind.HYPERTY, user="user://d/alice")),
        ("/hyperty/user/alice@d", Search(Kind.HYPERTY, email="alice@d")),
        ("/comm/user/user://d/alice", Search(Kind.OBJECT, user="user://d/alice", scheme="comm")),
        ("/comm/idp-identifier/alice@d", Search(Kind.OBJECT, email="alice@d", scheme="comm")),
        ("/dataobject/user/user://d/alice", Search(Kind.OBJECT, user="user://d/alice")),
        ("/hyperty/guid/user-guid://g1", Search(Kind.HYPERTY, guid="user-guid://g1")),
        ("/dataobject/name/myChat", Search(Kind.OBJECT, name="myChat")),
        ("/dataobject/reporter/hyperty://d/1", Search(Kind.OBJECT, reporter=HYPERTY)),
        ("/hyperty/url/hyperty://d/1", Search(Kind.HYPERTY, url=HYPERTY)),
        ("/hyperty/hyperty://d/1", Search(Kind.HYPERTY, url=HYPERTY)),
        ("/hyperty/1", Search(Kind.HYPERTY, url=HYPERTY)),
        ("/comm/1", Search(Kind.OBJECT, url="comm://d/1")),
    ],
)
def test_case_20_the_forms_of_the_specification_are_understood(
    resource: str, search: Search
) -> None:
    assert asked("read", resource=resource).search == search


def test_case_20_criteria_narrow_a_search_by_guid() -> None:
    hyperties = asked("read", resource="user-guid://g1", criteria={"scheme": "hyperty"})
    assert hyperties.search == Search(Kind.HYPERTY, guid="user-guid://g1")
    objects = asked("read", resource="user-guid://g1", criteria={"scheme": "comm"})
    assert objects.search == Search(Kind.OBJECT, guid="user-guid://g1", scheme="comm")


def test_case_20_a_filter_inside_the_criteria_counts() -> None:
    found = asked("read", resource="user://d/a", criteria={"filter": {"resources": ["chat"]}})
    assert found.search == Search(Kind.HYPERTY, user="user://d/a", resources=("chat",))


def test_a_page_may_be_asked_for() -> None:
    assert asked("read", resource="user://d/a", criteria={"page": 2}).page == 2
    assert asked("read", resource="user://d/a").page == 0


@pytest.mark.parametrize("resource", ["/hyperty/1", "/hyperty/hyperty://d/1", HYPERTY])
def test_case_21_unregistering_in_any_form_is_a_change_of_status(resource: str) -> None:
    change = asked("update", resource=resource, value="disconnected", attribute="status")
    assert change == Change(Kind.HYPERTY, HYPERTY, {"status": "disconnected"})


def test_case_21_a_data_object_is_unregistered_by_its_status() -> None:
    change = asked("update", resource="comm://d/1", value={"status": "disconnected"})
    assert change == Change(Kind.OBJECT, "comm://d/1", {"status": "disconnected"})


@pytest.mark.parametrize("resource", ["/hyperty/1", HYPERTY])
def test_case_22_an_update_without_a_value_is_a_sign_of_life(resource: str) -> None:
    assert asked("update", resource=resource) == Refresh(Kind.HYPERTY, HYPERTY)


def test_case_26_a_data_object_may_be_deleted_by_its_name() -> None:
    assert asked("delete", value={"name": "myChat"}) == Remove(Kind.OBJECT, name="myChat")


def test_case_27_any_url_is_looked_for_as_a_url_and_then_as_a_name() -> None:
    expected = Find(Search(Kind.OBJECT, url="connection://d/1"), True, "connection://d/1")
    assert asked("read", resource="connection://d/1") == expected


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("subscribe", {"resource": HYPERTY}),
        ("execute", {}),
        ("read", {}),
        ("read", {"resource": 5}),
        ("read", {"resource": ""}),
        ("read", {"resource": "/comm"}),
        ("read", {"resource": "/comm", "criteria": {"reporter": 5}}),
        ("read", {"resource": HYPERTY, "criteria": "x"}),
        ("read", {"resource": HYPERTY, "criteria": {"filter": "x"}}),
        ("read", {"resource": HYPERTY, "criteria": {"resources": 5}}),
        ("read", {"resource": HYPERTY, "criteria": {"resources": [5]}}),
        ("read", {"resource": HYPERTY, "criteria": {"page": 0}}),
        ("read", {"resource": HYPERTY, "criteria": {"page": True}}),
        ("create", {}),
        ("create", {"value": None}),
        ("create", {"value": "x"}),
        ("create", {"value": {"user": "a"}}),
        ("create", {"value": {"url": HYPERTY}}),
        ("create", {"value": {"url": 5, "user": "a"}}),
        ("update", {}),
        ("update", {"value": "disconnected", "attribute": "status"}),
        ("update", {"resource": HYPERTY, "value": "disconnected"}),
        ("update", {"resource": HYPERTY, "value": "x", "attribute": "colour"}),
        ("update", {"resource": HYPERTY, "value": [1]}),
        ("delete", {}),
        ("delete", {"value": {}}),
        ("delete", {"value": {"name": 5}}),
    ],
)
def test_case_28_what_cannot_be_understood_is_refused(type_: str, body: dict[str, Any]) -> None:
    with pytest.raises(BadMessage):
        request_of(type_, body, "d")


@pytest.mark.parametrize(
    ("type_", "body", "field"),
    [
        ("read", {"resource": 5}, "resource"),
        ("read", {"resource": []}, "resource"),
        ("read", {"resource": "/comm", "criteria": {"reporter": 5}}, "criteria.reporter"),
        ("read", {"resource": "/comm/x", "criteria": {"scheme": 5}}, "criteria.scheme"),
        ("create", {"value": {"url": 5, "user": "a"}}, "value.url"),
        ("create", {"value": {"url": HYPERTY, "user": ["a"]}}, "value.user"),
        ("update", {"resource": 5}, "resource"),
        ("update", {"resource": 0, "value": {"url": HYPERTY}}, "resource"),
        ("update", {"value": {"url": 5}}, "value.url"),
        ("update", {"resource": HYPERTY, "value": "x", "attribute": 5}, "attribute"),
        ("delete", {"value": {"name": 5}}, "value.name"),
        ("delete", {"value": {"url": HYPERTY, "user": 5}}, "value.user"),
    ],
)
def test_what_is_of_the_wrong_type_is_not_called_missing(
    type_: str, body: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadMessage) as refused:
        request_of(type_, body, "d")
    assert refused.value.description == f"The field `{field}` must be a text."


@pytest.mark.parametrize("missing", [{}, {"resource": None}, {"resource": ""}])
def test_what_is_missing_is_called_so(missing: dict[str, Any]) -> None:
    for type_ in ("read", "update"):
        with pytest.raises(BadMessage) as refused:
            request_of(type_, missing, "d")
        assert refused.value.description == "The body lacks `resource`."


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"guid": 5}, "The field `guid` must be a text."),
        ({"resource": []}, "The field `resource` must be a text."),
        ({}, "The body lacks `guid` (or `resource`)."),
        ({"guid": "x" * 301}, "A GUID has at most 300 characters."),
        ({"guid": "g", "jwt": {}}, "The field `jwt` must be a text."),
        ({"guid": "g"}, "The body lacks `jwt` (or `value`)."),
        ({"guid": "g", "jwt": "a.b.c", "previous": 5}, "The field `previous` must be a text."),
    ],
)
async def test_the_global_registry_says_what_is_wrong(body: dict[str, Any], said: str) -> None:
    registry: Any = SimpleNamespace(put=None)  # nothing is stored
    answer = await GlobalRegistryConnector(registry, 600)._answer("create", body, "192.0.2.1")
    assert (answer["code"], answer["description"]) == (400, said)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "`execute` needs body.method."),
        ({"method": 5}, "body.method must be a text."),
        ({"method": "login"}, "login needs params.token."),
        ({"method": "login", "params": {"token": 5}}, "params.token must be a text."),
    ],
)
def test_the_identity_manager_says_what_is_wrong(body: dict[str, Any], said: str) -> None:
    with pytest.raises(BadMessage) as refused:
        request = identity_requests.request_of("execute", body)
        assert isinstance(request, identity_requests.Execute)
        raise request.lacks("token")
    assert refused.value.description == said
