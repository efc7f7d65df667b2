"""deploy/helm: rendered by Helm's own library, valid for Kubernetes, and run as it says.

There is no cluster: the commands of its containers are run here with their environment, probes and
hooks are those of the manifests, and signals are sent as a kubelet sends them.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from msgnode.launch.pdeathsig import tie
from tests.client import Client
from tests.node import ROOT, free_port
from tests.production import settings
from tests.test_systemd import settings_of
from tests.waiting import until

CHART = ROOT / "deploy" / "helm"
VALUES = {"domain": "localhost"}
EVERYTHING = {
    **VALUES,
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "record": {"existingClaim": "record"},
    "moreSecrets": ["more"],
    "imagePullSecrets": [{"name": "pull"}],
    "settings": {"MAX_CONNECTIONS": 20000, "FEDERATION": "stubs"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "messages", "operator": "Exists"}],
}
DRAIN = 60
VERSIONS = ("1.27", "1.34")
UNITS = {"worker": "@", "web": "-web", "tasks": "-worker", "beat": "-beat", "migrate": "-migrate"}
PROGRAMS = {
    "python": [sys.executable],
    "messaging-node": [sys.executable, str(ROOT / "manage.py")],
}
# Helm is Go: in a process of its own, it meets neither forks nor signals of the tests.
RENDER = """
import json, sys
import helm_python as helm
place, values = sys.argv[1], json.loads(sys.argv[2])
with helm.Chart.load(place) as chart:
    chart.validate_schema(values)
    print(json.dumps(chart.render(values, name="n", namespace="prod")))
"""
LINT = """
import sys
import helm_python as helm
for each in helm.lint(sys.argv[1])["messages"]:
    print(each["severity"], each["error"])
"""
Manifest = dict[str, Any]

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="no wheel of Helm's library"
)


def helm(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, str(CHART), *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def rendered(values: dict[str, Any]) -> list[Manifest]:
    done = helm(RENDER, json.dumps(values))
    assert done.returncode == 0, done.stderr
    return [
        each
        for name, text in json.loads(done.stdout).items()
        if name.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each
    ]


def of(manifests: list[Manifest], kind: str, ending: str = "") -> Manifest:
    (found,) = (
        each
        for each in manifests
        if each["kind"] == kind and each["metadata"]["name"].endswith(ending)
    )
    return found


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The specifications of pods, by their part of the node."""
    return {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["spec"]
        for each in manifests
        if each["kind"] in ("Deployment", "Job")
    }


@pytest.fixture(scope="module")
def everything() -> list[Manifest]:
    return rendered(EVERYTHING)


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    done = helm(LINT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 icon is recommended"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [VALUES, EVERYTHING], ids=["least", "everything"])
def test_what_it_renders_is_valid(version: str, values: dict[str, Any]) -> None:
    """Strictly: what Kubernetes does not know is a fault. The operator's own kind has no schema."""
    import kubernetes_validate

    kinds = set()
    for each in rendered(values):
        kinds.add(each["kind"])
        if each["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(each, version, strict=True)
    assert {"Deployment", "Job", "Service", "Ingress", "NetworkPolicy"} <= kinds
    assert ("HorizontalPodAutoscaler" in kinds) is (values is EVERYTHING)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({}, "domain"),
        ({"domain": "a b"}, "domain"),
        ({"workers": {"drainSeconds": 1}}, "drainSeconds"),
        ({"worker": {"replicas": 2}}, "worker"),
        ({"settings": {"DATABASE_URL": "postgres://in-the-open"}}, "DATABASE_URL"),
        ({"record": {"url": "s3://one", "existingClaim": "other"}}, "record"),
    ],
)
def test_a_wrong_value_is_named(wrong: dict[str, Any], named: str) -> None:
    done = helm(RENDER, json.dumps({**VALUES, **wrong} if wrong else {}))
    assert done.returncode != 0
    assert named in done.stderr.splitlines()[-1] + done.stderr[-600:]


def test_its_version_is_that_of_the_node() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{chart["appVersion"]}"\n' in project
    assert chart["version"] == chart["appVersion"]


def test_each_pod_starts_what_its_unit_starts(everything: list[Manifest]) -> None:
    assert pods(everything).keys() == UNITS.keys()
    for part, pod in pods(everything).items():
        told = settings_of(ROOT / "deploy" / "systemd" / f"messaging-node{UNITS[part]}.service")
        words = told["ExecStart"].replace("/opt/messaging-node/bin/", "").split()
        command = [re.sub("^node@.*", "node@", word) for word in pod["containers"][0]["command"]]
        assert command == [re.sub("^node@.*", "node@", word) for word in words], part


def test_each_pod_may_do_little(everything: list[Manifest]) -> None:
    known = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    for pod in pods(everything).values():
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001  # that of deploy/image/build
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {each["mountPath"] for each in container["volumeMounts"]} >= {
            "/tmp",  # noqa: S108
            "/var/lib/messaging-node",
        }
        assert {each["name"] for each in container["env"]} <= known
        secret = [each for each in container["env"] if "valueFrom" in each]
        assert {each["name"] for each in secret} == {"SECRET_KEY", "DATABASE_URL", "REDIS_URL"}


def test_nobody_reaches_a_pod_but_the_proxy_and_prometheus(everything: list[Manifest]) -> None:
    policies = [each for each in everything if each["kind"] == "NetworkPolicy"]
    (all_,) = (each for each in policies if "Egress" in each["spec"]["policyTypes"])
    assert "ingress" not in all_["spec"]
    assert "app.kubernetes.io/component" not in all_["spec"]["podSelector"]["matchLabels"]
    for each in policies:
        if each is not all_:
            (rule,) = each["spec"]["ingress"]
            assert rule["from"]
            assert [port["port"] for port in rule["ports"]] == [8000]


def test_a_roll_out_stops_one_worker_at_a_time_and_gives_it_the_time_of_its_drain(
    everything: list[Manifest],
) -> None:
    """The next is stopped when another has been ready for as long as a stop may take."""
    deployment = of(everything, "Deployment", "-worker")["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    leave = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    stop = pod["terminationGracePeriodSeconds"]
    assert stop >= leave + math.ceil(2.4 * float(environment["DRAIN_SECONDS"])) + 30
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment["minReadySeconds"] >= stop
    start = (
        container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"]
    )
    assert deployment["progressDeadlineSeconds"] > stop + start
    ready = container["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] <= leave  # no proxy sends anybody new
    assert of(everything, "PodDisruptionBudget", "-worker")["spec"]["maxUnavailable"] == 1


def test_workers_shrink_one_at_a_time_and_slower_than_one_stops(everything: list[Manifest]) -> None:
    spec = of(everything, "HorizontalPodAutoscaler")["spec"]
    down = spec["behavior"]["scaleDown"]
    stop = pods(everything)["worker"]["terminationGracePeriodSeconds"]
    assert [each["value"] for each in down["policies"]] == [1]
    assert down["policies"][0]["periodSeconds"] > stop
    assert down["stabilizationWindowSeconds"] >= 1800
    assert "replicas" not in of(everything, "Deployment", "-worker")["spec"]
    metric = spec["metrics"][0]["pods"]["metric"]["name"]
    assert f"`{metric}`" in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    (endpoint,) = of(everything, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["path"], endpoint["params"]) == ("/metrics", {"worker": ["this"]})


class Pods:
    """Containers of the chart as processes of this machine."""

    def __init__(self, place: Path, secret: dict[str, str], manifests: list[Manifest]) -> None:
        self.place = place
        self.secret = secret
        self.pods = pods(manifests)
        self.stack = ExitStack()

    def start(self, part: str) -> Pod:
        pod = Pod(self, part)
        self.stack.callback(pod.process.wait, 20)
        self.stack.callback(pod.process.kill)
        return pod

    def said(self) -> str:
        return "\n".join(f"{log}: {log.read_text()[-1500:]}" for log in self.place.glob("*.log"))


class Pod:
    """One of them."""

    def __init__(self, node: Pods, part: str) -> None:
        self.spec = node.pods[part]
        (self.container,) = self.spec["containers"]
        self.port = free_port()
        self.data = node.place / f"{part}{self.port}"
        self.data.mkdir()
        told = {
            each["name"]: each["value"] if "value" in each
            else node.secret[each["valueFrom"]["secretKeyRef"]["key"]]
            for each in self.container["env"]
        }  # fmt: skip
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        here = {"PORT": str(self.port), "HOST": "127.0.0.1", "DATA_DIR": str(self.data)}
        self.environment = {**kept, **told, **here, "PYTHONPATH": str(ROOT)}
        self.log = node.place / f"{part}{self.port}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self._words(self.container["command"]), env=self.environment, cwd=self.data,
                stdout=log, stderr=log, preexec_fn=lambda: tie(signal.SIGKILL),
            )  # fmt: skip

    @staticmethod
    def _words(command: list[str]) -> list[str]:
        return [*PROGRAMS.get(command[0], command[:1]), *command[1:]]

    def probe(self, name: str) -> bool:
        """Whether a probe of the manifest succeeds; the process has to run."""
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        probe = self.container[name]
        if "exec" in probe:
            words = self._words(probe["exec"]["command"])
            return subprocess.run(words, env=self.environment, timeout=20).returncode == 0
        ports = [each["name"] for each in self.container["ports"]]
        assert probe["httpGet"]["port"] in ports
        try:  # as a kubelet: to the address of the pod, and a redirect counts as success
            url = f"http://127.0.0.1:{self.port}{probe['httpGet']['path']}"
            return httpx.get(url, trust_env=False, timeout=20).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> float:
        """What a kubelet does to end it; the seconds that the process took after its hook."""
        hook = self.container.get("lifecycle", {}).get("preStop")
        begun = time.monotonic()
        if hook:
            done = subprocess.run(hook["exec"]["command"], env=self.environment, timeout=60)
            assert done.returncode == 0
            assert self.process.poll() is None
        grace = self.spec["terminationGracePeriodSeconds"] - (time.monotonic() - begun)
        self.process.terminate()
        told = time.monotonic()
        assert self.process.wait(grace) == 0, self.log.read_text()[-3000:]
        return time.monotonic() - told


@pytest.fixture
def node(tmp_path: Path, migrated_url: str, redis_url: str) -> Iterator[Pods]:
    secret = settings(migrated_url, redis_url)
    values = {
        **VALUES,
        "workers": {"drainSeconds": DRAIN, "leaveSeconds": 1},
        "publicUrl": "http://localhost",
        "settings": {"ADMISSION": "anonymous", "REGISTRY_ACCESS": "open", "WORKER_TIMEOUT": 5},
    }
    made = Pods(tmp_path, secret, rendered(values))
    with made.stack:
        yield made


@pytest.mark.long
@pytest.mark.timeout(500)
async def test_its_pods_serve_and_a_roll_out_moves_sessions_one_after_another(node: Pods) -> None:
    migrate = node.start("migrate")
    assert await asyncio.to_thread(migrate.process.wait, 200) == 0, node.said()
    all_ = [node.start(part) for part in ("worker", "worker", "web", "tasks", "beat")]
    old, new, web, *background = all_

    async def so(look: Callable[[], bool]) -> None:
        await asyncio.to_thread(until, look, 150, node.said)

    for pod in (old, new, web):
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            await so(lambda pod=pod, name=name: pod.probe(name))
    await so(lambda: health(old)["workers"] == 2)
    for pod in background:
        await so(lambda pod=pod: pod.probe("livenessProbe"))

    url = f"ws://127.0.0.1:{old.port}/ws"
    clients = [await (await Client(url).connect()).open() for _ in range(40)]
    closed: list[float] = []

    async def told(client: Client) -> int:
        async with asyncio.timeout(60):
            code = await client.close_code()
        closed.append(time.monotonic())
        return code

    waiting = asyncio.gather(*map(told, clients))
    took = await asyncio.to_thread(old.stop)
    assert await waiting == [3001] * len(clients)
    assert took < 2.4 * DRAIN
    assert not any(client.inbox for client in clients)
    closed.sort()
    assert closed[-1] - closed[0] > len(clients) * 0.4 * DRAIN / 1000 / 2  # at a thousandth each
    for client in clients:
        other = await Client(f"ws://127.0.0.1:{new.port}/ws").connect()
        await other.resume(client)
        await other.hang_up()
    assert new.probe("readinessProbe")
    for pod in (web, *background, new):
        await asyncio.to_thread(pod.stop)


def health(pod: Pod) -> dict[str, Any]:
    url = f"http://127.0.0.1:{pod.port}/health/ready"
    return dict(httpx.get(url, trust_env=False, timeout=20).json())
