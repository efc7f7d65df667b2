"""The registry against a plain model in memory: filters, encoding, and histories of commands."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry import api, store
from registry.api import Disconnect, KeepAlive, Kind, Search, Update
from registry.models import Hyperty, Runtime, User

from .conftest import Field, hyperty

pytestmark = pytest.mark.django_db
ordinary = settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

words = st.sampled_from(["chat", "voice", "video", "Chat", "a b", "c++", "50%", "ü", ""])
lists = st.lists(words, max_size=4)
odd = st.text(
    st.sampled_from("ab+/%?#&= :@;,.ü€😀\\\"'") | st.characters(categories=["L", "N", "P", "S"]),
    min_size=1,
    max_size=20,
)


def forget() -> None:
    """Each example begins with an empty registry."""
    for model in (Hyperty, User, Runtime):
        model.objects.all().delete()


@ordinary
@given(
    entries=st.lists(st.tuples(st.sampled_from("ab"), lists, lists), min_size=1, max_size=8),
    resources=lists,
    schemes=lists,
)
def test_a_search_finds_what_a_plain_look_through_all_entries_finds(
    entries: list[tuple[str, list[str], list[str]]], resources: list[str], schemes: list[str]
) -> None:
    forget()
    expected = set()
    for number, (user, has, speaks) in enumerate(entries):
        url = f"hyperty://d/{number}"
        body = hyperty(resources=has, dataSchemes=speaks)
        api.register(Kind.HYPERTY, url, body, user)
        if user == "a" and set(resources) <= set(has) and set(schemes) <= set(speaks):
            expected.add(url)
    found = api.find(
        Search(Kind.HYPERTY, user="a", resources=tuple(resources), data_schemes=tuple(schemes))
    )
    assert {entry.url for entry in found} == expected


@ordinary
@given(
    has=st.lists(words.filter(bool), max_size=3),
    wanted=st.lists(words.filter(bool), min_size=1, max_size=3),
)
def test_a_filter_of_the_query_means_the_same(
    field: Field, has: list[str], wanted: list[str]
) -> None:
    forget()
    field.put("hyperty", "user", "a", "hyperty://d/1", body=hyperty(resources=has))
    query = "resources=" + ",".join(quote(word, safe="") for word in wanted)
    answer = field.get("hyperty", "user", "a", "hyperty", query=query)
    assert answer.status_code == (200 if set(wanted) <= set(has) else 404)


@ordinary
@given(user=odd, url=odd)
def test_any_id_survives_the_path(field: Field, user: str, url: str) -> None:
    forget()
    assert field.put("hyperty", "user", user, url, body=hyperty()).status_code == 200
    record = field.get("hyperty", "url", url).json()
    assert (record["userID"], record["hypertyID"]) == (user, url)
    assert list(field.get("hyperty", "user", user).json()) == [url]
    mail = user.rsplit("/", 1)[-1]
    if mail:
        assert list(field.get("hyperty", "email", mail).json()) == [url]
    assert field.delete("hyperty", "user", user, url).status_code == 200


URLS = ["hyperty://d/1", "hyperty://d/2"]
commands = st.one_of(
    st.tuples(
        st.just("register"), st.sampled_from(URLS), st.sampled_from("ab"),
        st.sampled_from(["live", "created", "disconnected"]),
    ),
    st.tuples(st.just("keep"), st.sampled_from(URLS)),
    st.tuples(
        st.just("update"), st.sampled_from(URLS), st.sampled_from(["live", "disconnected", "busy"])
    ),
    st.tuples(st.just("end"), st.sampled_from(URLS), st.sampled_from(["a", "b", None])),
)  # fmt: skip


@ordinary
@given(history=st.lists(commands, max_size=12), cut=st.integers(1, 12))
def test_any_history_in_batches_of_any_size_ends_as_the_model_says(
    heard: list[tuple[str, str]], history: list[tuple[Any, ...]], cut: int
) -> None:
    forget()
    heard.clear()
    owners: dict[str, str] = {}
    statuses: dict[str, str] = {}
    news: list[tuple[str, str]] = []
    allowed: list[bool] = []

    def become(url: str, status: str) -> None:
        before = statuses.get(url)
        statuses[url] = status
        if before not in (None, status) and status in ("live", "disconnected"):
            news.append((url, status))

    real: list[api.Command] = []
    for word, url, *more in history:
        if word == "register":
            user, status = more
            real.append(api.registration(Kind.HYPERTY, url, hyperty(status=status), user))
            ok = owners.setdefault(url, user) == user
        else:
            ok = url in owners
            if word == "keep":
                status = "live"
                real.append(KeepAlive(Kind.HYPERTY, url))
            elif word == "update":
                (status,) = more
                real.append(Update(Kind.HYPERTY, url, {"status": status}))
            else:
                status = "disconnected"
                real.append(Disconnect(Kind.HYPERTY, url, more[0]))
                ok = ok and more[0] in (None, owners[url])
        allowed.append(ok)
        if ok:
            become(url, status)
    outcomes = [
        outcome
        for start in range(0, len(real), cut)
        for outcome in store.apply(real[start : start + cut])
    ]
    assert [isinstance(outcome, api.Done) for outcome in outcomes] == allowed
    rows = Hyperty.objects.values_list("url", "status", "user_id")
    assert {url: (status, user) for url, status, user in rows} == {
        url: (statuses[url], owners[url]) for url in owners
    }
    assert heard == news
