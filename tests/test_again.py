"""Which tests are run again for a change."""

import pytest

from tests.again import touched
from tests.node import ROOT


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        (["tests/bus/test_table.py"], ["tests/bus/test_table.py"]),
        (["msgnode/bus/table.py"], ["tests/bus"]),
        (["msgnode/bus/table.py", "tests/bus/test_table.py"], ["tests/bus"]),
        (["policies/engine/pdp.py", "spark/tasks.py"], ["tests/policies", "tests/spark"]),
        (["docs/bus.md", "msgnode/node/parts.py", "tests/node.py", "tests/bus/test_gone.py"], []),
    ],
)
def test_a_change_runs_its_own_tests_and_those_of_the_rooms_it_changes(
    changed: list[str], tests: list[str]
) -> None:
    assert touched(changed, ROOT) == tests


def test_every_room_with_tests_is_found() -> None:
    for room in ("bus", "sessions", "workers"):
        assert touched([f"msgnode/{room}/anything.py"], ROOT) == [f"tests/{room}"]
