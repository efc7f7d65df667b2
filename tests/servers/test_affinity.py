"""The web process keeps to one of the processors it is given, with all its threads.

Each in a process of its own: a thread takes its processors from the one that starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from tests.node import ROOT, Node, running

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2 if hasattr(os, "sched_getaffinity") else True,
    reason="there are no two processors to choose from, or no call that chooses",
)


def _printed(program: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True, capture_output=True, text=True, cwd=ROOT, timeout=30,
    )  # fmt: skip
    return run.stdout.splitlines()


def test_web_processes_of_two_ports_keep_to_two_processors_of_those_they_are_given() -> None:
    given = sorted(os.sched_getaffinity(0))
    kept = _printed("""
        import os
        from msgnode.servers.start import keep_to_one_processor

        given = os.sched_getaffinity(0)
        for port in (8100, 8101, 8100):
            os.sched_setaffinity(0, given)
            keep_to_one_processor(port)
            print(*os.sched_getaffinity(0))
    """)
    assert kept[0] == kept[2] != kept[1]
    assert {int(number) for number in kept} <= set(given)


def test_one_processor_is_left_as_it_is() -> None:
    (kept,) = _printed("""
        import os
        from msgnode.servers.start import keep_to_one_processor

        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        keep_to_one_processor(8100)
        print(*os.sched_getaffinity(0))
    """)
    assert int(kept) == min(os.sched_getaffinity(0))


@pytest.mark.long
def test_all_threads_of_a_web_process_are_on_one_processor_and_a_workers_are_not(
    tmp_path: Path, template: Path
) -> None:
    def processors(node: Node) -> set[frozenset[int]]:
        found = set()
        for thread in Path(f"/proc/{node.pid}/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended just now
                found.add(frozenset(os.sched_getaffinity(int(thread.name))))
        return found

    with running(tmp_path, template) as worker:
        web = Node(tmp_path, ROLE="web")
        try:
            assert web.start().get("/admin/login/") == 200
            ((only,),) = processors(web)
            assert only in os.sched_getaffinity(0)
            assert processors(worker) == {frozenset(os.sched_getaffinity(0))}
        finally:
            web.kill()
