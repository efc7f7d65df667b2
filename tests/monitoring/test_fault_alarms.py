"""An alarm stands while the failures of a part repeat."""

from __future__ import annotations

from msgnode.core.faults import REPEATS, WINDOW, Faults
from msgnode.monitoring.fault_alarms import KIND, FaultAlarms


def test_an_alarm_stands_while_failures_repeat_and_is_cleared_afterwards() -> None:
    now = [0.0]
    faults = Faults(lambda: now[0])
    raised: list[tuple[str, str, str]] = []
    cleared: list[tuple[str, str]] = []
    alarms = FaultAlarms(
        faults, "host:1", lambda *alarm: raised.append(alarm), lambda *alarm: cleared.append(alarm)
    )
    for _ in range(REPEATS):
        alarms.look()
        faults.note("link")
    assert raised == []
    alarms.look()
    alarms.look()
    assert [each[:2] for each in raised] == [(KIND, "host:1 link")]
    now[0] = WINDOW + 1
    alarms.look()
    assert cleared == [(KIND, "host:1 link")]
    alarms.look()
    assert len(cleared) == 1
