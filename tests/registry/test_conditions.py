"""/api/v1 with conditions: nothing that is known is sent again, nothing unseen is overwritten."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from registry import api
from registry.api import Kind
from registry.rest.paths import key_of

from .conftest import Clock, data_object, hyperty
from .test_global import GUID, jwt
from .test_v1 import BASE, ONE, is_problem

PATH = f"{BASE}/{key_of(ONE)}"
ENTRY = hyperty(user="user://d/alice@d")
ANOTHER = '"0123456789abcdef01234567"'


@pytest.fixture
def v1(db: None) -> Client:
    return Client()


def put(v1: Client, path: str = PATH, body: Any = ENTRY, **headers: str) -> Any:
    return v1.put(path, body, content_type="application/json", headers=_named(headers))


def send(v1: Client, what: str, **headers: str) -> Any:
    """A write of any kind to the entry."""
    if what == "put":
        return put(v1, **headers)
    if what == "patch":
        body = {"descriptor": "new"}
        return v1.patch(PATH, body, content_type="application/json", headers=_named(headers))
    if what == "delete":
        return v1.delete(PATH, headers=_named(headers))
    return v1.post(f"{PATH}/keep-alive", headers=_named(headers))


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


WRITES = ("put", "patch", "delete", "keep-alive")


def test_a_write_tells_the_tag_that_a_read_tells(v1: Client, clock: Clock) -> None:
    for what in ("put", "patch", "keep-alive"):
        clock.forward(1)
        assert send(v1, what)["ETag"] == v1.get(PATH)["ETag"]


def test_what_is_known_is_not_sent_again(v1: Client, clock: Clock) -> None:
    put(v1)
    for path in (PATH, BASE, "/api/v1/users?email=alice@d", "/api/v1/changes"):
        first = v1.get(path)
        for known in (first["ETag"], f"W/{first['ETag']}", f"{ANOTHER}, {first['ETag']}", "*"):
            again = v1.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again["ETag"] == first["ETag"]
        assert v1.head(path, headers={"If-None-Match": first["ETag"]}).status_code == 304
        assert v1.get(path, headers={"If-None-Match": ANOTHER}).json() == first.json()


def test_a_change_is_another_tag_and_so_is_the_end_of_an_entrys_time(
    v1: Client, clock: Clock
) -> None:
    tags = [put(v1)["ETag"]]
    send(v1, "patch")
    tags.append(v1.get(PATH)["ETag"])
    clock.forward(2 * 3600)
    tags.append(v1.get(PATH)["ETag"])
    assert len(set(tags)) == 3


@pytest.mark.parametrize("what", WRITES)
def test_a_write_is_done_if_nothing_has_changed_meanwhile(
    v1: Client, clock: Clock, what: str
) -> None:
    tag = put(v1)["ETag"]
    clock.forward(1)
    send(v1, "patch")
    is_problem(send(v1, what, If_Match=tag), 412)
    assert v1.get(PATH).json()["descriptor"] == "new"
    tag = v1.get(PATH)["ETag"]
    is_problem(send(v1, what, If_Match=f"W/{tag}"), 412)
    assert send(v1, what, If_Match=f"{ANOTHER}, {tag}").status_code in (200, 204)


@pytest.mark.parametrize("what", WRITES)
def test_any_entry_will_do_for_a_star_and_none_will_not(v1: Client, what: str) -> None:
    missing = send(v1, what, If_Match="*")
    is_problem(missing, 412 if what == "put" else 404)
    put(v1)
    assert send(v1, what, If_Match="*").status_code in (200, 204)


def test_an_entry_is_made_only_if_it_is_not_there(v1: Client) -> None:
    assert put(v1, If_None_Match="*").status_code == 201
    is_problem(put(v1, If_None_Match="*"), 412)


def test_time_that_has_run_out_since_is_a_change(v1: Client, clock: Clock) -> None:
    tag = put(v1)["ETag"]
    clock.forward(2 * 3600)
    is_problem(send(v1, "keep-alive", If_Match=tag), 412)
    assert v1.get(PATH).json()["status"] == "disconnected"


def test_data_objects_and_records_have_conditions_too(v1: Client) -> None:
    path = f"/api/v1/data-objects/{key_of('comm://d/1')}"
    tag = put(v1, path, data_object())["ETag"]
    assert put(v1, path, data_object(), If_Match=tag).status_code == 200
    is_problem(put(v1, path, data_object(), If_Match=ANOTHER), 412)
    path = f"/api/v1/guids/{GUID}"
    first = {"jwt": jwt(lastUpdate="2026-01-01T00:00:00Z")}
    is_problem(put(v1, path, first, If_Match="*"), 412)
    tag = put(v1, path, first, If_None_Match="*")["ETag"]
    assert tag == v1.get(path)["ETag"]
    newer = {"jwt": jwt(lastUpdate="2026-06-01T00:00:00Z")}
    is_problem(put(v1, path, newer, If_Match=ANOTHER), 412)
    assert put(v1, path, newer, If_Match=tag).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_of_many_who_saw_the_same_one_writes() -> None:
    api.register(Kind.HYPERTY, ONE, hyperty(), "user://d/alice@d")
    tag = Client().get(PATH)["ETag"]
    codes: list[int] = []
    begin = threading.Barrier(8)

    def write() -> None:
        begin.wait()
        codes.append(send(Client(), "patch", If_Match=tag).status_code)
        connections.close_all()

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200] + [412] * 7


def test_the_document_tells_of_conditions(v1: Client) -> None:
    paths = v1.get("/api/schema?format=json").json()["paths"]
    entry = paths["/api/v1/hyperties/{key}"]
    headers = {
        method: {each["name"] for each in entry[method]["parameters"] if each["in"] == "header"}
        for method in ("get", "put", "patch", "delete")
    }
    assert headers["get"] == {"If-None-Match"}
    assert headers["put"] == headers["patch"] == headers["delete"] == {"If-Match", "If-None-Match"}
    assert "ETag" in entry["get"]["responses"]["200"]["headers"]
    assert {"304", "412"} & set(entry["get"]["responses"]) == {"304"}
    assert "412" in entry["delete"]["responses"]
