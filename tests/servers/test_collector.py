"""Collections look at what is new, and rings among what was kept are found all the same.

Each in a process of its own: what is frozen is a matter of the whole interpreter.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.node import ROOT

BEGIN = """
    import asyncio, gc, weakref
    from msgnode.servers import collector

    class Ring:
        def __init__(self):
            self.itself = self

    class Loop:
        def __init__(self):
            self.later = []

        def call_later(self, seconds, called, *args):
            self.later.append((seconds, called, args))

        def call_soon_threadsafe(self, called, *args):
            self.later.append((0, called, args))

        def turn(self):
            _, called, args = self.later.pop()
            called(*args)

    sessions = []
    loop = Loop()
    collector.Collector(sessions.__len__).start(loop)
    [(seconds, look, args)] = loop.later
"""


def run(script: str) -> str:
    program = textwrap.dedent(BEGIN) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_start_does_not_wait_for_a_look_through_all_that_was_loaded() -> None:
    out = run("""
        seen = []
        gc.callbacks.append(lambda phase, info: seen.append(info["generation"]))
        collector.Collector().start(loop)
        print(2 in seen)
    """)
    assert out.split() == ["False"]


def test_what_survives_a_collection_is_not_looked_at_again() -> None:
    out = run("""
        kept = [[] for _ in range(50_000)]
        gc.collect()
        print(gc.get_freeze_count() > 50_000, len(gc.get_objects()) < 5_000)
    """)
    assert out.split() == ["True", "True"]


SERVING = """
    serving = [True]
    collector.Collector(is_serving=lambda: bool(serving)).start(loop)
    gc.callbacks.pop(0)  # that of the first one
    loop.later.clear()
"""


def test_while_pages_are_served_what_survives_is_frozen_at_the_next_moment_without_one() -> None:
    out = run(
        SERVING
        + """
    gc.collect()
    few = [[] for _ in range(1_000)]
    before = gc.get_freeze_count()
    gc.collect()
    print(gc.get_freeze_count() == before, loop.later == [])
    many = [[] for _ in range(2 * collector.MANY)]
    gc.collect()
    gc.collect()
    loop.turn()
    print(gc.get_freeze_count() == before, len(loop.later) == 1)
    ring = Ring()
    seen = weakref.ref(ring)
    del ring
    serving.clear()
    loop.turn()
    print(gc.get_freeze_count() >= before + collector.MANY, seen() is None, loop.later == [])
    """
    )
    assert out.split() == ["True"] * 7


def test_if_there_is_no_such_moment_many_survivors_are_frozen_anyway() -> None:
    out = run(
        SERVING
        + """
    collector.FREEZES_ANYWAY = 0.0
    many = [[] for _ in range(2 * collector.MANY)]
    before = gc.get_freeze_count()
    gc.collect()
    loop.turn()
    print(gc.get_freeze_count() >= before + collector.MANY, loop.later == [])
    """
    )
    assert out.split() == ["True"] * 2


def test_no_list_is_made_of_what_another_thread_may_just_be_making() -> None:
    out = run("""
        del gc.get_objects
        collector.FREEZES_ANYWAY = 0.0
        collector.Collector(is_serving=lambda: True).start(loop)
        gc.callbacks.pop(0)  # that of the first one
        before = gc.get_freeze_count()
        kept = [[] for _ in range(2 * collector.MANY)]
        gc.collect()
        loop.turn()
        print(gc.get_freeze_count() >= before + collector.MANY)
    """)
    assert out.split() == ["True"]


def test_a_frozen_ring_that_nobody_holds_goes_once_enough_has_come() -> None:
    out = run("""
        ring = Ring()
        seen = weakref.ref(ring)
        gc.collect()
        del ring
        gc.collect()
        print(seen() is not None)
        look(*args)
        print(seen() is not None)
        collector._WORTH_IT = 1_000
        more = [[] for _ in range(3 * gc.get_freeze_count())]
        gc.collect()
        look(*args)
        print(seen() is None)
    """)
    assert out.split() == ["True", "True", "True"]


def test_what_sessions_have_is_not_worth_a_look_through_everything() -> None:
    out = run("""
        ring = Ring()
        seen = weakref.ref(ring)
        gc.collect()
        del ring
        collector._WORTH_IT = 1_000
        more = [[] for _ in range(3 * gc.get_freeze_count())]
        gc.collect()
        sessions.extend(more[: len(more) // 200])
        look(*args)
        print(seen() is not None)
        sessions.clear()
        look(*args)
        print(seen() is None)
    """)
    assert out.split() == ["True", "True"]


def test_it_goes_on_looking() -> None:
    out = run("""
        look(*args)
        print(len(loop.later), loop.later[-1][0] == seconds)
    """)
    assert out.split() == ["2", "True"]
