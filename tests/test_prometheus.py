"""deploy/'s alerts and dashboard, asked of a Prometheus that scrapes a real node.

promtool and prometheus come from PATH; where they are not, a test says so and is skipped, and fails
when CI is set.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from msgnode.core.explanations import ALARMS, ERRORS
from tests.node import ROOT, Node, free_port
from tests.waiting import until

DEPLOY = ROOT / "deploy"
RULES = (DEPLOY / "prometheus-rules.yml").read_text(encoding="utf-8")
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
METRIC = re.compile(r"\bmsgnode_\w+")
EXPRESSIONS = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]
]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI has no {name}: install the package prometheus")
        pytest.skip(f"no {name}: install the package prometheus")
    return found


def promtool(*words: str, text: str = "", place: Path = ROOT) -> str:
    """What promtool says; it has to be content."""
    done = subprocess.run(
        [program("promtool"), *words], input=text, cwd=place, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documented() -> set[str]:
    """The metrics of docs/metrics.md, which a test compares with the code."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(msgnode_\w+)` \|", page, re.MULTILINE))


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    asked = {name for _, text in EXPRESSIONS for name in METRIC.findall(text)}
    asked |= set(METRIC.findall(RULES))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} <= documented()


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for _, text in EXPRESSIONS for name in METRIC.findall(text)}
    left_out = {  # alerts
        *("msgnode_link_up", "msgnode_lease_held", "msgnode_lease_renewals_total"),
        "msgnode_database_up",
        "msgnode_build_info",  # of the version, not of the traffic
    }
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} == documented() - left_out


def test_each_alert_leads_to_a_page_that_there_is() -> None:
    pages = {f"alarms/{kind}" for kind in ALARMS} | {
        f"errors/{each.name}" for each in ERRORS.values()
    }
    links = re.findall(r"runbook_url: https://node\.example\.org/problems/(.+)", RULES)
    assert len(links) == RULES.count("- alert:")
    assert set(links) <= pages | {"alarms/{{ $labels.kind }}"}


def test_no_two_panels_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])
        }  # fmt: skip
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_alerts_are_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(DEPLOY / "prometheus-rules.yml"))
    assert "SUCCESS" in promtool("check", "config", str(DEPLOY / "prometheus.yml"))


def test_alerts_come_when_they_should_and_not_before(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "prometheus-rules.yml", tmp_path)
    (tmp_path / "test.yml").write_text(
        """
rule_files: [prometheus-rules.yml]
tests:
  - interval: 15s
    input_series:
      - series: 'msgnode_alarms{kind="gap"}'
        values: '0x20 2x20'
      - series: 'msgnode_worker_answered{worker="a"}'
        values: '1x40'
      - series: 'msgnode_worker_answered{worker="b"}'
        values: '1x20 0x20'
      - series: 'msgnode_faults_total{part="reset"}'
        values: '0+100x40'
      - series: 'up{job="messaging-node", instance="i"}'
        values: '1x20 0x20'
    alert_rule_test:
      - {eval_time: 4m, alertname: NodeAlarm, exp_alerts: []}
      - eval_time: 6m
        alertname: NodeAlarm
        exp_alerts:
          - exp_labels: {severity: warning, kind: gap}
            exp_annotations:
              summary: 2 alarms gap stand.
              runbook_url: https://node.example.org/problems/alarms/gap
      - {eval_time: 5m, alertname: WorkerDoesNotTellItsNumbers, exp_alerts: []}
      - eval_time: 8m
        alertname: WorkerDoesNotTellItsNumbers
        exp_alerts:
          - exp_labels: {severity: critical, worker: b}
            exp_annotations:
              summary: Worker b did not tell its numbers to the one that was asked.
              runbook_url: https://node.example.org/problems/alarms/worker-down
      - {eval_time: 9m, alertname: FaultsRepeat, exp_alerts: []}
      - {eval_time: 5m, alertname: NodeDoesNotAnswer, exp_alerts: []}
      - eval_time: 8m
        alertname: NodeDoesNotAnswer
        exp_alerts:
          - exp_labels: {severity: critical, job: messaging-node, instance: i}
            exp_annotations:
              summary: i does not answer /metrics.
              runbook_url: https://node.example.org/problems/alarms/path-broken
""",
        encoding="utf-8",
    )
    promtool("test", "rules", "test.yml", place=tmp_path)


@pytest.fixture
def prometheus(node: Node, tmp_path: Path) -> Iterator[httpx.Client]:
    """A Prometheus that looks at the shared node."""
    with looking_at(node, tmp_path) as client:
        yield client


@contextmanager
def looking_at(node: Node, tmp_path: Path) -> Iterator[httpx.Client]:
    """A Prometheus with deploy/'s own files that looks every half second, and minds seconds where
    the rules say a minute."""
    rules = RULES.replace("for: 1m\n", "for: 1s\n")
    (tmp_path / "prometheus-rules.yml").write_text(rules, encoding="utf-8")
    text = (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
    assert "127.0.0.1:8000" in text
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{node.port}").replace("15s", "500ms")
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            yield client
    finally:
        server.kill()
        server.wait(20)


def asked(prometheus: httpx.Client, expression: str) -> list[Any]:
    """What an expression is now."""
    answer = prometheus.get("/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", (expression, answer)
    return list(answer["data"]["result"])


def until_scraped(prometheus: httpx.Client) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        try:
            if asked(prometheus, 'count_over_time(up{job="messaging-node"}[10m]) > 4'):
                return
        except (httpx.TransportError, ValueError):
            pass  # it starts
        time.sleep(0.2)
    pytest.fail("Prometheus does not see the node")


@pytest.mark.long
async def test_a_prometheus_has_an_answer_for_every_panel_and_no_alert_of_a_sound_node(
    node: Node, prometheus: httpx.Client, come: Any
) -> None:
    assert "no" not in promtool("check", "metrics", text=node.text("/metrics"))
    alice, bob = await come(), await come()
    for _ in range(3):
        await alice.send("update", bob.runtime_url, {"value": "seen"})
        await bob.received_from(alice)
    await asyncio.to_thread(look_at, prometheus)


def look_at(prometheus: httpx.Client) -> None:
    until_scraped(prometheus)
    elsewhere = (  # where several workers, devices, peers, visitors, invitations, … are
        "Connectors that are scripts",
        "Devices",
        "Federation: visitors",
        "Guests",
        "Invitations",
        "Keys of issuers",
        "Leases",
        "Links",
        "MQTT",
        "P2P",
        "QoS",
        "Workers",
        "What waits",
        "Standing alarms",
        "Traces",
        "Addresses asked",
    )
    # A node of one worker has no faults between workers and watches no other's addresses, and one
    # without peers has nothing to tell of them.
    not_here = ("faults", "msgnode_watched_addresses", "msgnode_peer_")
    here = [
        (title, expression)
        for title, expression in EXPRESSIONS
        if not title.startswith(elsewhere) and not any(s in expression for s in not_here)
    ]

    def wrong() -> list[object]:
        """What has no answer, rules that are not well, and those that fire."""
        rules = prometheus.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
        firing = {rule["name"] for rule in rules if rule.get("state") == "firing"}
        return [
            *(each for each in here if not asked(prometheus, each[1])),
            *(rule for rule in rules if rule["health"] != "ok"),
            *(firing - {"NodeAlarm"}),  # other tests of the node may raise alarms
        ]

    # A series has to be seen twice, and half a second may be too short for a machine that is busy.
    until(lambda: not wrong(), 30, lambda: str(wrong()))


def alert(prometheus: httpx.Client, name: str, **labels: str) -> dict[str, str] | None:
    """The labels of an alert that fires, and has these."""
    for each in prometheus.get("/api/v1/alerts").json()["data"]["alerts"]:
        wanted = {"alertname": name, **labels}.items()
        if wanted <= each["labels"].items() and each["state"] == "firing":
            return dict(each["labels"])
    return None


def health(prometheus: httpx.Client) -> list[str]:
    """Of what it looks at, when it looked last."""
    targets = prometheus.get("/api/v1/targets").json()["data"]["activeTargets"]
    return [target["health"] for target in targets]
