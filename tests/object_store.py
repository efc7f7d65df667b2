"""A real object store with the S3 interface for tests: OpenStack Swift with s3api, of this machine.

One proxy, account, container and object server, each a process on a port of its own, with their
data in a folder of the test. Debian: swift-proxy, swift-account, swift-container, swift-object.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from pyarrow import fs

from msgnode.launch.pdeathsig import tie
from tests.services import NotAvailable, free_port, miss
from tests.waiting import until

START_SECONDS = 60.0
KEY, SECRET = "test:tester", "testing"
BUCKET = "record"
_FULL = "100%"
_KINDS = ("account", "container", "object")
_PROGRAMS = (
    "memcached",
    "swift-ring-builder",
    *(f"swift-{kind}-server" for kind in ("proxy", *_KINDS)),
)
_PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
log_name = proxy
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats bulk s3api tempauth copy dlo slo
  proxy-server
[app:proxy-server]
use = egg:swift#proxy
conn_timeout = 10
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{cache}
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:copy]
use = egg:swift#copy
[filter:dlo]
use = egg:swift#dlo
[filter:slo]
use = egg:swift#slo
"""
_BACKEND = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
fallocate_reserve = {reserve}
log_name = {kind}
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""


@dataclass
class ObjectStore:
    """A store that runs; `environment` is what its users need."""

    folder: Path
    port: int
    name: str = "node"
    processes: dict[str, psutil.Popen] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Of the record, as RECORD_URL names it."""
        return f"s3://{BUCKET}/{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            # A store of this age knows no checksum behind the data.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }  # fmt: skip

    def system(self) -> fs.FileSystem:
        """A plain view of it."""
        return fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, region="us-east-1", scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}", allow_bucket_creation=True,
        )  # fmt: skip

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes.values():
            process.send_signal(number)

    def stop(self, kind: str) -> None:
        """End one of its servers."""
        process = self.processes.pop(kind)
        process.kill()
        process.wait(10)

    def start(self, kind: str) -> None:
        """Start a server that was ended."""
        _start(self, kind, [f"swift-{kind}-server", str(self.folder / f"{kind}.conf"), "--verbose"])

    def mend(self) -> None:
        """All servers run and there is room, whatever a test has left."""
        self.signal(signal.SIGCONT)
        for kind in ("proxy", *_KINDS):
            if kind not in self.processes:
                self.start(kind)
        if f"reserve = {_FULL}\n" in (self.folder / "object.conf").read_text():
            self.empty()
        until(lambda: _answers(self), START_SECONDS, lambda: _logs(self.folder))

    def fill(self) -> None:
        """From now on there is no room: the object server leaves all of its disk to others."""
        self._reserve("0", _FULL)

    def empty(self) -> None:
        """There is room again."""
        self._reserve(_FULL, "0")

    def _reserve(self, before: str, after: str) -> None:
        conf = self.folder / "object.conf"
        text = conf.read_text()
        conf.write_text(text.replace(f"reserve = {before}\n", f"reserve = {after}\n"))
        self.stop("object")
        self.start("object")


@pytest.fixture(scope="session")
def any_object_store() -> Iterator[ObjectStore]:
    """An object store of all tests: it takes some ten seconds to start."""
    with contextlib.ExitStack() as stack:
        try:
            store = stack.enter_context(running_store())
        except NotAvailable as lack:
            miss(lack)
        yield store


@pytest.fixture
def object_store(any_object_store: ObjectStore) -> Iterator[ObjectStore]:
    """An object store in which everything works, and a folder of the test's own."""
    any_object_store.name = f"node-{secrets.token_hex(4)}"
    yield any_object_store
    any_object_store.mend()


@contextlib.contextmanager
def running_store() -> Iterator[ObjectStore]:
    """A store of our own, with one empty bucket. Raises NotAvailable."""
    if lacking := [name for name in _PROGRAMS if shutil.which(name) is None]:
        raise NotAvailable(
            f"no object store: {', '.join(lacking)} not found; install memcached, swift-proxy, "
            "swift-account, swift-container and swift-object"
        )
    with tempfile.TemporaryDirectory(prefix="node-swift-") as name:
        folder = Path(name)
        store = ObjectStore(folder, free_port())
        try:
            _prepare(store)
            until(lambda: _answers(store), START_SECONDS, lambda: _logs(folder))
            yield store
        finally:
            for process in store.processes.values():
                process.kill()
            psutil.wait_procs(list(store.processes.values()), timeout=10)


def _prepare(store: ObjectStore) -> None:
    folder, user = store.folder, getpass.getuser()
    (folder / "devices" / "d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_prefix = tests\nswift_hash_path_suffix = tests\n"
        "[storage-policy:0]\nname = one\ndefault = yes\n"
    )
    cache = free_port()
    _start(store, "cache", ["memcached", "-l", "127.0.0.1", "-p", str(cache), "-u", user])
    texts = {"proxy": _PROXY.format(port=store.port, user=user, folder=folder, cache=cache)}
    for kind in _KINDS:
        port = free_port()
        builder = str(folder / f"{kind}.builder")
        for words in (
            ("create", "4", "1", "0"),
            ("add", f"r1z1-127.0.0.1:{port}/d1", "1"),
            ("rebalance",),
        ):
            subprocess.run(
                ["swift-ring-builder", builder, *words], check=True, capture_output=True, timeout=60
            )
        texts[kind] = _BACKEND.format(port=port, user=user, folder=folder, kind=kind, reserve=0)
    for kind, text in texts.items():
        (folder / f"{kind}.conf").write_text(text)
        store.start(kind)


def _start(store: ObjectStore, kind: str, command: list[str]) -> None:
    with (store.folder / f"{kind}.log").open("wb") as log:
        store.processes[kind] = psutil.Popen(
            command, cwd=store.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={"PATH": os.environ["PATH"], "HOME": str(store.folder)},
            preexec_fn=lambda: tie(signal.SIGKILL),
        )  # fmt: skip


def _answers(store: ObjectStore) -> bool:
    with contextlib.suppress(OSError):
        store.system().create_dir(BUCKET)
        return True
    return False


def _logs(folder: Path) -> str:
    return "\n".join(log.read_text()[-1500:] for log in folder.glob("*.log"))
