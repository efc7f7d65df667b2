"""Only a test that says why may be tried a second time, in CI alone, and nobody overlooks it."""

import pytest

from tests.node import ROOT
from tests.retries import BY_FIXTURE, BY_ROOM

FAILS_ONCE = """
import pytest
tries = []

{mark}
def test_fails_once():
    tries.append(1)
    assert len(tries) > 1
"""
MARKED = '@pytest.mark.retry_in_ci(reason="the browser starts slowly")'


def run(
    pytester: pytest.Pytester, mark: str, place: str = "test_it.py", source: str = FAILS_ONCE,
    words: tuple[str, ...] = (),
) -> pytest.RunResult:  # fmt: skip
    file = pytester.path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source.replace("{mark}", mark))
    pytester.makeini("[pytest]\naddopts = --strict-markers\nmarkers = long")
    others = [word for name in ("randomly", "django", "asyncio") for word in ("-p", f"no:{name}")]
    return pytester.runpytest_inprocess("-p", "tests.retries", *others, *words)


def test_in_ci_a_marked_test_is_tried_once_more_and_the_summary_says_so_and_why(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(pytester, MARKED)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["RERUN *::test_fails_once: the browser starts slowly", "tried again: 1"]
    )


SHARES = """
import pytest
made = []

@pytest.fixture(scope="session")
def machine():
    made.append("machine")
    yield
    made.append("no machine")

@pytest.fixture(scope="module")
def server(machine):
    made.append("server")
    yield
    made.append("no server")

def test_before(server):
    assert made == ["machine", "server"]

@pytest.mark.retry_in_ci(reason="the server starts slowly")
def test_fails_once(server):
    assert made == ["machine", "server", "no server", "server"]

def test_after(server):
    assert made[4:] == []
"""


@pytest.mark.parametrize("is_last", [False, True])
def test_the_second_try_has_a_new_one_of_what_its_file_shares_and_what_all_share_stays(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    monkeypatch.setenv("CI", "true")
    chosen = ("-k", "before or once") if is_last else ()
    result = run(pytester, "", source=SHARES, words=chosen)
    result.assert_outcomes(passed=2 if is_last else 3, deselected=int(is_last))
    result.stdout.fnmatch_lines(["tried again: 1"])


def test_elsewhere_it_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    run(pytester, MARKED).assert_outcomes(failed=1)


def test_a_test_without_the_mark_fails_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    run(pytester, "").assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "mark",
    [
        "@pytest.mark.retry_in_ci",
        '@pytest.mark.retry_in_ci(reason=" ")',
        '@pytest.mark.retry_in_ci("slow")',
        '@pytest.mark.retry_in_ci(reason="slow", reruns=5)',
        "@pytest.mark.flaky(reruns=5)",
    ],
)
def test_whoever_gives_no_reason_or_wants_more_tries_is_refused(
    pytester: pytest.Pytester, mark: str
) -> None:
    result = run(pytester, mark)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_fails_once: *retry_in_ci*"])


@pytest.mark.parametrize(
    ("mark", "place", "reason"),
    [
        ("", "tests/spark/test_it.py", "waits for Spark"),
        ("@pytest.mark.long", "test_it.py", "starts several servers, or is about much at once"),
        ('@pytest.mark.usefixtures("start_node")', "test_it.py", "waits for a node, *"),
    ],
)
def test_in_ci_what_waits_for_real_servers_is_tried_once_more_with_its_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, mark: str, place: str, reason: str
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef start_node(): pass\n")
    result = run(pytester, mark, place)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"RERUN *::test_fails_once: {reason}", "tried again: 1"])


def test_every_room_and_fixture_that_has_a_reason_exists() -> None:
    assert [room for room in BY_ROOM if not (ROOT / room).exists()] == []
    sources = [*(ROOT / "tests").rglob("*.py")]
    defined = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert [name for name in BY_FIXTURE if f"def {name}(" not in defined] == []
