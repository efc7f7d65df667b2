"""/api/v1: resources, pages, filters, problems and the document."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Permission, User
from django.db import DataError
from django.http import HttpResponse
from django.test import Client
from django.urls import clear_script_prefix, set_script_prefix

from registry import api
from registry.api import Kind
from registry.rest.paths import key_of
from registry.rest.views import HypertyViews

from .conftest import Clock, data_object, hyperty, without
from .test_global import GUID, jwt

ONE = "hyperty://d/1"
BASE = "/api/v1/hyperties"
LONG_NUMBER = base64.b64encode(b"p=" + b"9" * 4_500).decode()

pytestmark = pytest.mark.django_db


@pytest.fixture
def v1(db: None) -> Client:
    return Client()


def put(v1: Client, url: str = ONE, **other: Any) -> Any:
    body = hyperty(user="user://d/alice@d") | other
    return v1.put(f"{BASE}/{key_of(url)}", body, content_type="application/json")


def found(v1: Client, base: str = BASE, **query: Any) -> list[str]:
    answer = v1.get(f"{base}?{urlencode(query, doseq=True)}")
    assert answer.status_code == 200, answer.content
    return [entry["url"] for entry in answer.json()["results"]]


def is_problem(answer: HttpResponse, code: int) -> dict[str, Any]:
    assert answer.status_code == code
    assert answer["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == code
    assert Client().get(body["type"]).status_code == 200
    return body


def test_an_entry_is_put_read_changed_kept_alive_and_ended(v1: Client, clock: Clock) -> None:
    answer = put(v1)
    assert answer.status_code == 201
    assert put(v1).status_code == 200
    path = f"{BASE}/{key_of(ONE)}"
    entry = v1.get(path).json()
    assert (entry["url"], entry["user"], entry["email"]) == (ONE, "user://d/alice@d", "alice@d")
    assert entry["expiresAt"] == "2030-01-01T13:00:01Z"
    answer = v1.patch(path, {"descriptor": "new"}, content_type="application/json")
    assert answer.json()["descriptor"] == "new"
    assert v1.delete(path).status_code == 204
    assert v1.get(path).json()["status"] == "disconnected"
    assert v1.post(f"{path}/keep-alive").json()["status"] == "live"


def test_data_objects_have_the_same_life(v1: Client) -> None:
    path = f"/api/v1/data-objects/{key_of('comm://d/1')}"
    answer = v1.put(path, data_object(), content_type="application/json")
    assert answer.status_code == 201
    assert v1.get(path).json()["name"] == "myChat"
    assert found(v1, "/api/v1/data-objects", name="myChat") == ["comm://d/1"]
    assert found(v1, "/api/v1/data-objects", reporter="hyperty://d/2") == []


def test_lists_are_filtered_by_all_that_is_asked(v1: Client, clock: Clock) -> None:
    put(v1, "hyperty://d/1", resources=["chat", "voice"], guid="g1", expires=60)
    put(v1, "hyperty://d/2", status="disconnected", runtime="runtime://d/r2", guid="g2")
    put(v1, "hyperty://d/3", user="bob@d", resources=["voice"], guid="g3")
    one, two, three = (f"hyperty://d/{number}" for number in (1, 2, 3))
    assert found(v1) == [three, two, one]
    assert found(v1, user="user://d/alice@d") == [two, one]
    assert found(v1, email="alice@d") == [two, one]
    assert found(v1, guid="user-guid://g1") == [one]
    assert found(v1, runtime="runtime://d/r2") == [two]
    assert found(v1, status="live") == [three, one]
    assert found(v1, user="user://d/alice@d", resources=["chat", "voice"]) == [one]
    assert found(v1, user="user://d/alice@d", resources="chat", dataSchemes="x") == []
    assert found(v1, expiresBefore="2030-01-01T12:30:00Z") == [one]
    clock.forward(62)
    assert found(v1, status="live") == [three]
    assert found(v1, status="disconnected") == [two, one]


def test_lists_are_paged_by_cursor(v1: Client) -> None:
    for number in range(5):
        put(v1, f"hyperty://d/{number}")
    first = v1.get(f"{BASE}?limit=2").json()
    assert [entry["url"] for entry in first["results"]] == ["hyperty://d/4", "hyperty://d/3"]
    put(v1, "hyperty://d/5")
    second = v1.get(first["next"]).json()
    assert [entry["url"] for entry in second["results"]] == ["hyperty://d/2", "hyperty://d/1"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *(
            (f"hyperties?cursor={each}", 404)
            for each in ("x", "cD1hYmM=", "cD05OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", LONG_NUMBER)
        ),
        *(
            (f"hyperties?modifiedAfter={each}", 400)
            for each in ("soon", "0001-01-01T00:00:00%2B23:59")
        ),
        *((f"hyperties?limit={each}", 400) for each in ("0", "-1", "ten", "")),
        *((f"hyperties/{key}", 400) for key in ("%21", "a", "aGk=", "_____w", "aGl")),
        *((each, 404) for each in ("nothing", "hyperties/a/b/c", "guids/x/y", "hyperties/")),
    ],
)  # fmt: skip
def test_what_is_not_there_or_cannot_be_asked_for_is_a_problem(
    v1: Client, path: str, status: int
) -> None:
    is_problem(v1.get(f"/api/v1/{path}"), status)
    if path == "nothing":
        is_problem(Client(enforce_csrf_checks=True).post("/api/v1/nothing", {}), 404)


@pytest.mark.parametrize("path", ["hyperties", "data-objects", "users", "changes"])
def test_a_filter_that_is_not_there_is_a_problem(v1: Client, path: str) -> None:
    errors = is_problem(v1.get(f"/api/v1/{path}?e-mail=alice@d"), 400)["errors"]
    assert "one of cursor" in errors["e-mail"][0]


def test_a_resource_without_a_key_is_a_problem(v1: Client) -> None:
    assert "resources" in is_problem(v1.get(f"{BASE}?resources=chat"), 400)["errors"]


def test_what_is_missing_or_wrong_is_named(v1: Client) -> None:
    body = without(hyperty(), "runtime") | {"expires": "soon"}
    answer = v1.put(f"{BASE}/{key_of(ONE)}", body, content_type="application/json")
    assert set(is_problem(answer, 400)["errors"]) == {"runtime", "user", "expires"}
    deep = v1.put(f"{BASE}/{key_of(ONE)}", "[" * 5_000, content_type="application/json")
    is_problem(deep, 400)
    halves = json.dumps(hyperty() | {"\ud800": 1})
    answer = v1.put(f"{BASE}/{key_of(ONE)}", halves, content_type="application/json")
    assert "surrogate" in is_problem(answer, 400)["detail"]
    answer = v1.put(f"{BASE}/{key_of(ONE)}", "{", content_type="application/json")
    is_problem(answer, 400)
    is_problem(v1.put(f"{BASE}/{key_of(ONE)}", "x", content_type="text/plain"), 415)
    is_problem(v1.get(f"{BASE}/{key_of(ONE)}"), 404)
    is_problem(v1.delete(BASE), 405)
    put(v1)
    is_problem(put(v1, user="bob"), 404)


def test_users_and_history_are_listed(v1: Client) -> None:
    put(v1)
    v1.delete(f"{BASE}/{key_of(ONE)}")
    users = v1.get("/api/v1/users?email=alice@d").json()["results"]
    assert [user["userID"] for user in users] == ["user://d/alice@d"]
    changes = v1.get(f"/api/v1/changes?url={ONE}").json()["results"]
    assert [(c["before"], c["after"], c["cause"]) for c in changes] == [
        ("live", "disconnected", "deleted"),
        ("", "live", "registered"),
    ]


def test_signed_records_are_put_and_read(v1: Client, clock: Clock) -> None:
    path, text = f"/api/v1/guids/{GUID}", jwt()
    is_problem(v1.get(path), 404)
    body = {"jwt": text}
    assert v1.put(path, body, content_type="application/json").status_code == 201
    assert v1.put(path, body, content_type="application/json").status_code == 200
    assert v1.get(path).json() == {"guid": GUID, "jwt": text}
    is_problem(v1.put(path, {"jwt": "a.b.c"}, content_type="application/json"), 400)


def test_accounts_are_asked_for_where_the_setting_says_so(v1: Client, settings: Any) -> None:
    settings.REGISTRY = settings.REGISTRY | {"ACCESS": "account"}
    answer = v1.get(BASE)
    is_problem(answer, 401)
    assert answer["WWW-Authenticate"].startswith("Basic")
    account = User.objects.create_user("reader", password="a long password")
    v1.force_login(account)
    is_problem(v1.get(BASE), 403)  # a user of the domain has an account, too
    account.user_permissions.add(Permission.objects.get(codename="view_hyperty"))
    assert v1.get(BASE).status_code == 200
    is_problem(put(v1), 403)
    account.user_permissions.add(Permission.objects.get(codename="change_hyperty"))
    assert put(v1).status_code == 201


def test_too_many_requests_are_a_problem_with_a_time_to_return(v1: Client, settings: Any) -> None:
    settings.CLIENT_REQUESTS_PER_MINUTE = 1
    answers = [v1.get(BASE, REMOTE_ADDR="192.0.2.7") for _ in range(2)]
    is_problem(answers[-1], 429)
    assert int(answers[-1]["Retry-After"]) > 50


def test_every_operation_of_the_document_tells_its_refusals(v1: Client) -> None:
    document = v1.get("/api/schema?format=json").json()
    operations = [op for path in document["paths"].values() for op in path.values()]
    assert all({"400", "401", "403", "404"} <= set(each["responses"]) for each in operations)


def test_the_document_has_operations_by_what_they_are_about(v1: Client) -> None:
    document = v1.get("/api/schema?format=json").json()
    described = {each["name"]: each["description"] for each in document["tags"]}
    assert described["data objects"] == "Data object instances of this domain."
    paths = document["paths"].items()
    for path, operations in paths:
        for operation in operations.values():
            assert operation["tags"] == [path.split("/")[3].replace("-", " ")], path
            assert operation["tags"][0] in described
    block = document["paths"]["/api/v1/peers/{domain}/block/"]["post"]
    assert block["summary"] == "Nothing passes: 403."
    ours = {path.split("/")[3] for path in document["paths"] if path.startswith("/api/v1/")}
    assert ours >= {"hyperties", "data-objects", "users", "changes", "guids"}
    page = v1.get("/api/docs").content.decode()
    assert "https://" not in page.replace("https://json-schema", "")


def test_a_value_that_the_database_does_not_know_is_a_bad_request(
    v1: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise DataError('time zone displacement out of range: "-23:56"\nLINE 1: SELECT')

    monkeypatch.setattr(HypertyViews, "get_queryset", refuse)
    answer = v1.get(BASE)
    assert answer.status_code == 400
    said = 'A value is none that the database knows: time zone displacement out of range: "-23:56".'
    assert answer.json()["detail"] == said


def test_an_entry_registered_elsewhere_is_the_same_entry(v1: Client) -> None:
    api.register(Kind.HYPERTY, ONE, hyperty(), "user://d/alice@d")
    assert found(v1, url=ONE) == [ONE]


@pytest.mark.parametrize("path", ["/api/v1", "/api/v1/"])
def test_the_index_lists_what_every_app_has_below_it(v1: Client, path: str) -> None:
    said = v1.get(path).json()
    resources = [url.removeprefix("http://testserver/api/v1/") for url in said["resources"]]
    assert {"hyperties", "data-objects", "users", "changes", "guids/{guid}", "status"} <= set(
        resources
    )
    assert any(each.startswith("peers/") for each in resources)
    assert any(each.startswith("reports/") for each in resources)
    assert resources == sorted(set(resources))
    assert said["document"] == "http://testserver/api/schema"
    assert v1.get(said["resources"][0]).status_code == 200
    assert v1.get(said["description"]).status_code == 200
    is_problem(v1.post(path), 405)


def test_the_index_below_a_path_of_a_proxy_names_that_path(v1: Client) -> None:
    set_script_prefix("/node/")  # as the server's handler does, which this client goes without
    try:
        said = v1.get("/api/v1/").json()
    finally:
        clear_script_prefix()
    assert "http://testserver/node/api/v1/hyperties" in said["resources"]
    assert said["document"] == "http://testserver/node/api/schema"


def test_a_field_that_is_not_there_is_named_and_nothing_changes(v1: Client) -> None:
    put(v1)
    path = f"{BASE}/{key_of(ONE)}"
    before = v1.get(path).json()
    refused = v1.patch(path, {"descriptr": "new"}, content_type="application/json")
    assert "descriptr" in is_problem(refused, 400)["errors"]
    assert v1.get(path).json() == before
    again = v1.put(path, before, content_type="application/json")
    assert again.status_code == 200, "as it was read"
