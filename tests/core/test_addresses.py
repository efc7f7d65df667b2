"""Addresses are compared by segments, and nothing of them is ever guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.core import addresses

SEGMENT = st.text("abcdefgh019-._~é", min_size=1, max_size=6)
PATHS = st.lists(SEGMENT, max_size=4)
SCHEMES = st.sampled_from(["runtime", "hyperty", "comm", "domain", "Hyperty", "hyperty-runtime"])


@st.composite
def urls(draw: st.DrawFn) -> str:
    return f"{draw(SCHEMES)}://" + "/".join([draw(SEGMENT), *draw(PATHS)])


@given(st.text(max_size=60))
def test_any_text_can_be_taken_apart_and_stays_as_it_was(text: str) -> None:
    parsed = addresses.parse(text)
    assert parsed.text == text
    assert parsed.scheme == parsed.scheme.lower()


@given(urls())
def test_scheme_domain_and_path_are_the_whole_address(url: str) -> None:
    parsed = addresses.parse(url)
    scheme = url[: len(parsed.scheme)]
    assert scheme.lower() == parsed.scheme
    assert f"{scheme}://{parsed.domain}{parsed.path}" == url


@pytest.mark.parametrize(
    ("text", "scheme", "domain", "path"),
    [
        ("runtime://d/1", "runtime", "d", "/1"),
        ("RUNTIME://D:8080/1", "runtime", "D:8080", "/1"),
        ("runtime:/alice", "runtime", "", "/alice"),
        ("mn:/session", "mn", "", "/session"),
        ("sip:a@b", "sip", "", "a@b"),
        ("comm://d", "comm", "d", ""),
        ("plain", "", "", "plain"),
        ("a/b:c", "", "", "a/b:c"),
        (":x", "", "", ":x"),
        ("", "", "", ""),
    ],
)
def test_an_address_is_taken_apart_at_its_first_colon(
    text: str, scheme: str, domain: str, path: str
) -> None:
    parsed = addresses.parse(text)
    assert (parsed.scheme, parsed.domain, parsed.path) == (scheme, domain, path)


@pytest.mark.parametrize(
    ("domain", "home"),
    [
        ("msg-node.d", "d"),
        ("registry.D:1", "d:1"),
        ("idm.d", "d"),
        ("d", "d"),
        ("xregistry.d",) * 2,
    ],
)
def test_the_home_domain_has_no_service_label_and_no_case(domain: str, home: str) -> None:
    assert addresses.home_domain(domain) == home
    assert addresses.parse(f"domain://{domain}/sm").home == home


@given(urls(), urls())
def test_under_means_the_same_segments_first(address: str, prefix: str) -> None:
    mine, above = address.split("/"), prefix.split("/")
    assert addresses.is_under(address, prefix) == (mine[: len(above)] == above)


@given(urls(), PATHS)
def test_what_is_appended_lies_below(url: str, more: list[str]) -> None:
    assert addresses.is_under("/".join([url, *more]), url)
    assert not addresses.is_under(url + "x", url)


@given(urls())
def test_the_ancestors_are_all_prefixes_by_segment_nearest_first(url: str) -> None:
    found = list(addresses.ancestors(url))
    parts = url.split("/")
    assert found == ["/".join(parts[:count]) for count in range(len(parts) - 1, 2, -1)]
    assert all(addresses.is_under(url, each) for each in found)


def test_an_address_without_a_domain_has_ancestors_down_to_its_scheme() -> None:
    assert list(addresses.ancestors("runtime:/a/b")) == ["runtime:/a"]
    assert list(addresses.ancestors("")) == []
    assert list(addresses.ancestors("/")) == []


@given(urls())
def test_the_twin_of_a_twin_is_the_address_itself(url: str) -> None:
    twin = addresses.runtime_twin(url)
    if url.startswith(("runtime:", "hyperty-runtime:")):
        assert twin != url
        assert addresses.runtime_twin(twin) == url
    else:
        assert twin == ""


def test_a_scheme_without_a_colon_has_no_twin() -> None:
    assert addresses.runtime_twin("runtime") == ""


@pytest.mark.parametrize(
    ("text", "is_good"),
    [("", False), ("a", True), ("a" * 2048, True), ("a" * 2049, False), ("a\nb", False)]
    + [("a\x00", False), ("\ud800", False), ("é✓", True), ("a\u202eb", False)],
)
def test_an_address_is_printable_and_of_bounded_length(text: str, is_good: bool) -> None:
    assert (addresses.fault(text) == "") is is_good


@pytest.mark.parametrize(
    ("address", "resource"),
    [
        ("comm://d/1/changes", "comm://d/1"),
        ("comm://d/1/subscription", "comm://d/1"),
        ("comm://d/1/registration", "comm://d/1"),
        ("runtime://d/1/status", "runtime://d/1"),
        ("comm://d/1/children", "comm://d/1"),
        ("comm://d/1/chat", "comm://d/1/chat"),
        ("comm://changes", "comm://changes"),
        ("changes", "changes"),
    ],
)
def test_the_resource_of_an_address_is_what_it_is_about(address: str, resource: str) -> None:
    assert addresses.resource_of(address) == resource


@pytest.mark.parametrize(
    ("address", "child"),
    [
        ("comm://d/1/children/x", ("comm://d/1", "comm://d/1/children/x")),
        ("comm://d/1/children/x/y/z", ("comm://d/1", "comm://d/1/children/x")),
        ("comm://d/1/children/", None),
        ("comm://d/1/children", None),
        ("comm://children/x", None),
        ("comm://d/children/x", None),
        ("comm:/d/1/children/x", ("comm:/d/1", "comm:/d/1/children/x")),
        ("runtime://d/1/children/x", None),
        ("hyperty-runtime://d/1/children/x", None),
        ("hyperty://d/1/children/x", None),
        ("domain://d/1/children/x", None),
        ("comm://d/1", None),
    ],
)
def test_a_child_is_known_with_its_object(address: str, child: tuple[str, str] | None) -> None:
    assert addresses.child_of(address) == child


@pytest.mark.parametrize(
    ("address", "is_bare"),
    [("hyperty://d/1", True), ("hyperty://d/1/x", False), ("hyperty://d/", False)]
    + [("hyperty://d", False), ("hyperty:/d", False), ("hyperty:///d", False)],
)
def test_a_bare_entity_has_a_domain_and_one_segment(address: str, is_bare: bool) -> None:
    assert addresses.is_bare_entity(addresses.parse(address)) is is_bare


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("HYPERTY://d/1", "hyperty://d/1"), ("hyperty://D.Example:80/A", "hyperty://d.example:80/A"),
        ("hyperty://d/./1", "hyperty://d/1"), ("hyperty://d//1", "hyperty://d/1"),
        ("hyperty://d/%39%7e", "hyperty://d/9~"), ("hyperty://d/a%2fb", "hyperty://d/a%2Fb"),
        ("hyperty://d/1/", "hyperty://d/1/"), ("hyperty://d/1/.", "hyperty://d/1/"),
        ("hyperty://d/e\u0301", "hyperty://d/\u00e9"), ("hyperty://\u00c9.d/1", "hyperty://\u00e9.d/1"),
        ("Runtime:/Alice", "runtime:/Alice"), ("sip:Bob@Legacy.Example", "sip:Bob@legacy.example"),
        ("user://d/a%40b", "user://d/a%40b"), ("a", "a"), ("x/y:Z", "x/y:Z"), ("%2e", ""),
        ("hyperty://d/1 ", ""), ("hyperty://d/1?x", ""), ("hyperty://d/1#x", ""),
        ("hyperty:///1", ""),
        ("hyperty://d/../1", ""), ("hyperty://d/%2e%2E/1", ""), ("hyperty://d/50%", ""),
        ("hyperty://d/\u200b1", ""), ("hyperty://d/\u202e1", ""), ("hyp%65rty://d/1", ""), ("", ""),
    ],
)  # fmt: skip
def test_an_address_has_one_canonical_form_or_none(text: str, form: str) -> None:
    assert addresses.canonical(text) == form
    assert (addresses.fault(text) == "") is (text == form != "")


@given(st.lists(st.sampled_from([*'aA/:%@?# ~.1\u00e9[\\"', "..", "%41", "%2f", "e\u0301", "://"])))
def test_what_the_quick_check_accepts_is_canonical_and_a_canonical_form_stays(
    pieces: list[str],
) -> None:
    text = "".join(pieces)
    form = addresses.canonical(text)
    if addresses._CANONICAL.fullmatch(text):
        assert form == text or not text
    if form:
        assert addresses.canonical(form) == form
        assert addresses.fault(form) == ""
    else:
        assert addresses.fault(text)
