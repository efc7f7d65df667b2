"""The routing table against a model so simple that it is right: lists that are searched through."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from msgnode.bus.ports import Layer
from msgnode.bus.return_paths import MAX_RETURNS, ReturnPath, ReturnPaths
from msgnode.bus.table import RoutingTable
from msgnode.core import addresses
from tests.fakes import FakeSession

RUNTIMES = ["runtime://d/1", "runtime://d/10", "runtime://d/1/x", "hyperty-runtime://d/1"]
ADDRESSES = ["hyperty://d/1", "hyperty://d/2", "comm://d/1", "comm://d/1/changes"]
PROBES = [*RUNTIMES, *ADDRESSES, "runtime://d/1/sm", "runtime://d/1/x/sm", "comm://d/1/x", "x"]

runtimes = st.sampled_from(RUNTIMES)
held = st.sampled_from(ADDRESSES)
numbers = st.integers(0, 5)


class TableModel(RuleBasedStateMachine):
    """Six sessions come and go; after each step both tables say the same."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RoutingTable()
        self.sessions = [FakeSession(RUNTIMES[n % len(RUNTIMES)], f"token{n}") for n in range(6)]
        self.owners: dict[str, FakeSession] = {}
        self.subscribed: list[tuple[str, FakeSession]] = []
        self.entered: list[FakeSession] = []
        self.learned: dict[str, FakeSession] = {}

    @rule(address=held, number=numbers)
    def allocate(self, address: str, number: int) -> None:
        self.table.allocate(address, self.sessions[number])
        self.owners[address] = self.sessions[number]

    @rule(address=held, number=numbers)
    def release(self, address: str, number: int) -> None:
        self.table.release(address, self.sessions[number])
        if self.owners.get(address) is self.sessions[number]:
            del self.owners[address]

    @rule(address=held, number=numbers)
    def subscribe(self, address: str, number: int) -> None:
        self.table.subscribe(address, self.sessions[number])
        if (address, self.sessions[number]) not in self.subscribed:
            self.subscribed.append((address, self.sessions[number]))

    @rule(address=held, number=numbers)
    def unsubscribe(self, address: str, number: int) -> None:
        self.table.unsubscribe(address, self.sessions[number])
        self.subscribed = [
            each for each in self.subscribed if each != (address, self.sessions[number])
        ]

    @rule(number=numbers, is_connected=st.booleans())
    def enter(self, number: int, is_connected: bool) -> None:
        session = self.sessions[number]
        session.is_connected = is_connected
        self.table.add_runtime(session)
        self.entered = [each for each in self.entered if each is not session] + [session]

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        session = self.sessions[number]
        self.table.remove_runtime(session)
        self.entered = [each for each in self.entered if each is not session]

    @rule(address=held, number=numbers)
    def learn(self, address: str, number: int) -> None:
        self.table.learn(address, self.sessions[number])
        self.learned[address] = self.sessions[number]

    @rule(address=held, number=numbers)
    def forget(self, address: str, number: int) -> None:
        self.table.forget(address, self.sessions[number])
        if self.learned.get(address) is self.sessions[number]:
            del self.learned[address]

    @invariant()
    def the_listeners_are_the_owner_or_all_subscribers(self) -> None:
        for address in PROBES:
            owner = self.owners.get(address)
            expected = [session for to, session in self.subscribed if to == address]
            found = self.table.listeners(address)
            assert list(found) == ([owner] if owner else expected)
            assert list(self.table.subscribers(address)) == expected

    @invariant()
    def the_runtime_is_the_longest_one_above_and_its_newest_session(self) -> None:
        for address in PROBES:
            assert self.table.at_runtime(address) is self._at_runtime(address)

    @invariant()
    def the_owner_is_the_nearest_one_above(self) -> None:
        for address in PROBES:
            above = [address, *addresses.ancestors(address)]
            expected = next((self.owners[each] for each in above if each in self.owners), None)
            expected = expected or self._at_runtime(address)
            expected = expected or self._at_runtime(addresses.runtime_twin(address))
            expected = expected or next(
                (self.learned[each] for each in above if each in self.learned), None
            )
            assert self.table.owner_of(address) is expected

    @invariant()
    def the_runtimes_of_several_sessions_are_known(self) -> None:
        urls = [each.runtime_url for each in self.entered]
        assert self.table.shared == {url for url in urls if urls.count(url) > 1}

    @invariant()
    def nothing_is_left_of_what_has_gone(self) -> None:
        assert self.table.sizes == {
            "allocations": len(self.owners),
            "subscribed_addresses": len({address for address, _ in self.subscribed}),
            "runtimes": len({each.runtime_url for each in self.entered}),
            "learned": len(self.learned),
        }
        for session in self.sessions:
            assert self.table.knows(session) is (session in self.entered)

    def _at_runtime(self, address: str) -> FakeSession | None:
        above = [each for each in self.entered if addresses.is_under(address, each.runtime_url)]
        longest = max((each.runtime_url for each in above), key=len, default="")
        nearest = [each for each in above if each.runtime_url == longest]
        connected = [each for each in nearest if each.is_connected]
        return (connected or nearest or [None])[-1]


TestTable = TableModel.TestCase
TestTable.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=30, deadline=None
)


def test_a_session_url_names_its_session_among_those_of_the_runtime() -> None:
    table = RoutingTable()
    first, second = FakeSession("runtime://d/1", "one"), FakeSession("runtime://d/1", "two")
    table.add_runtime(first)
    table.add_runtime(second)
    assert table.at_runtime("runtime://d/1/one") is first
    assert table.at_runtime("runtime://d/1/two") is second
    assert table.at_runtime("runtime://d/1/sm") is second


def test_the_way_back_is_kept_for_several_answers_and_for_a_bounded_number_of_requests() -> None:
    table, session = RoutingTable(), FakeSession("runtime://d/1")
    table.add_runtime(session)
    for number in range(MAX_RETURNS + 1):
        table.return_paths.remember(ReturnPath("x", str(number), session.id, "runtime://d/1"), "a")
    assert table.requester_of("x", "0") is None
    for _ in range(2):
        assert table.requester_of("x", str(MAX_RETURNS)) is session
    table.remove_runtime(session)
    assert table.requester_of("x", str(MAX_RETURNS)) is None


def test_what_a_session_may_still_answer_is_known_and_bounded() -> None:
    paths = ReturnPaths()
    for number in range(MAX_RETURNS):
        paths.remember(ReturnPath("x", str(number), "asker", "runtime://d/1"), str(number % 2))
    again = ReturnPath("x", "0", "other tab", "runtime://d/1")
    paths.remember(again, "1")
    assert paths.find("x", "0") == again
    assert len(paths) == MAX_RETURNS
    assert again in paths.of("1")
    assert len(paths.of("0")) == MAX_RETURNS // 2 - 1
    assert len(paths.of("1")) == MAX_RETURNS // 2 + 1
    for number in range(MAX_RETURNS):
        paths.remember(ReturnPath("y", str(number), "asker", "runtime://d/1"))
    assert (len(paths), paths.of("0"), paths.of("1")) == (MAX_RETURNS, [], [])


class Watcher:
    """Hears what is changed for the sessions of a worker."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def entered(self, session: object) -> None:
        self.heard.append(("entered", session))

    def left(self, session: object) -> None:
        self.heard.append(("left", session))

    def changed(self, *change: object) -> None:
        self.heard.append(("changed", *change))

    def asked(self, *asked: object) -> None:
        self.heard.append(("asked", *asked))


def test_who_stands_in_for_a_session_has_all_that_it_had_and_nothing_of_others() -> None:
    table, url = RoutingTable(), "runtime://d/1"
    before, other, after = (FakeSession(url) for _ in range(3))
    for session in (before, other):
        table.add_runtime(session)
        table.subscribe("comm://d/1", session)
    table.allocate("hyperty://d/1", before)
    table.allocate("hyperty://d/2", other)
    table.learn("hyperty://d/3", before)
    table.learn("hyperty://d/4", other)
    assert table.listeners("comm://d/1") == (before, other)
    watcher = Watcher()
    table.observe(watcher)  # type: ignore[arg-type]
    unknown = "comm://d/unknown"
    table.replace(
        before,
        after,
        ["hyperty://d/1", "hyperty://d/2", unknown],
        ["comm://d/1", unknown],
        ["hyperty://d/3", "hyperty://d/4", unknown],
    )
    assert table.owners == {"hyperty://d/1": after, "hyperty://d/2": other}
    assert table.learned == {"hyperty://d/3": after, "hyperty://d/4": other}
    assert table.listeners("comm://d/1") == (after, other)
    assert table.runtimes == {url: [after, other]}
    assert table.listeners(unknown) == ()
    assert watcher.heard == []


def test_who_watches_hears_of_each_layer_what_a_session_of_this_worker_has_or_has_no_more() -> None:
    table, mine, theirs = RoutingTable(), FakeSession("runtime://d/1"), FakeSession("runtime://d/2")
    theirs.is_here = False
    watcher = Watcher()
    table.observe(watcher)  # type: ignore[arg-type]
    for session in (mine, theirs):
        table.allocate("hyperty://d/1", session)
        table.learn("hyperty://d/2", session)
        table.forget("hyperty://d/2", session)
        table.subscribe("comm://d/1", session)
        table.unsubscribe("comm://d/1", session)
        table.release("hyperty://d/1", session)
    assert watcher.heard == [
        ("changed", Layer.OWNED, "hyperty://d/1", mine, True),
        ("changed", Layer.LEARNED, "hyperty://d/2", mine, True, None),
        ("changed", Layer.LEARNED, "hyperty://d/2", mine, False),
        ("changed", Layer.SUBSCRIBED, "comm://d/1", mine, True),
        ("changed", Layer.SUBSCRIBED, "comm://d/1", mine, False),
        ("changed", Layer.OWNED, "hyperty://d/1", mine, False),
    ]


def test_listeners_are_one_tuple_as_long_as_they_are_the_same() -> None:
    table, session = RoutingTable(), FakeSession("runtime://d/1")
    table.subscribe("comm://d/1", session)
    listeners = table.listeners("comm://d/1")
    assert table.listeners("comm://d/1") is listeners
    table.subscribe("comm://d/1", FakeSession("runtime://d/2"))
    assert len(table.listeners("comm://d/1")) == 2


def test_a_probe_stands_apart_and_only_those_of_this_worker_are_told_of() -> None:
    table, watcher = RoutingTable(), Watcher()
    table.observe(watcher)  # type: ignore[arg-type]
    mine, theirs = FakeSession("domain://d/probe"), FakeSession("domain://d/other")
    theirs.is_here = False
    for probe in (mine, theirs):
        table.add_probe(probe)
    assert table.probes == {"domain://d/probe": mine, "domain://d/other": theirs}
    assert watcher.heard == [("entered", mine)]
    table.remove_probe(FakeSession("domain://d/probe"))
    assert mine in table.probes.values()
    for probe in (mine, theirs):
        table.remove_probe(probe)
    assert table.probes == {}
    assert watcher.heard == [("entered", mine), ("left", mine)]
