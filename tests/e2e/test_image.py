"""The images that deploy/image/build makes: built from scratch, loaded from their archives, run.

They are run as docs/install.md says, by the part of `make release` that tries them. It takes root,
buildah, mmdebstrap, podman, Debian's archive and the packages' index. Where a machine has not all
of these (a container that may not mount, no network), the tests say which, and are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.node import ROOT
from tests.scripts_of_ci import load
from tests.services import needs_program
from tests.test_version import VERSION
from tests.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("image"),
]

RELEASE = load(ROOT / ".ci" / "release")
NAME = f"{RELEASE.IMAGE}:{VERSION}"
MOST_BYTES = 250_000_000
ARCHIVE = "http://deb.debian.org/debian/dists/bookworm/Release"
REPORT = """
import time
from spark import report_runs
from spark.enqueue import enqueue
from spark.models import Report, ReportRun

run = report_runs.queue("daily", report_runs.last_full("daily"))
enqueue(run.pk)
while run.state not in ReportRun.OVER:
    time.sleep(0.5)
    run.refresh_from_db()
print(run.state, run.error, *Report.objects.values_list("rows", flat=True))
"""


def said_by(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=400, check=check)


@pytest.fixture(scope="module")
def storage() -> Iterator[Path]:
    """Images and containers of the tests' own; skipped where buildah may do nothing."""
    for program in ("buildah", "mmdebstrap", "podman"):
        needs_program(program)
    if os.geteuid() != 0:
        pytest.skip("an image is built by root")
    with (
        tempfile.TemporaryDirectory(prefix="images-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        place = Path(folder)  # not pytest's: podman refuses a path of more than 50 characters
        for driver in ("overlay", "vfs"):
            file = place / f"{driver}.conf"
            file.write_text(
                f'[storage]\ndriver = "{driver}"\n'
                f'graphroot = "{place}/{driver}"\nrunroot = "{place}/run"\n'
            )
            patch.setenv("CONTAINERS_STORAGE_CONF", str(file))
            made = said_by("buildah", "from", "scratch", check=False)
            mounted = said_by("buildah", "mount", made.stdout.strip(), check=False)
            if mounted.returncode == 0:
                shutil.copy("/bin/true", mounted.stdout.strip())
                break
        else:
            pytest.skip(f"buildah may not mount here: {made.stderr}{mounted.stderr}")
        said_by("buildah", "rm", "--all")
        needs_debians_archive()
        yield place
        said_by("buildah", "rm", "--all", check=False)
        said_by("buildah", "rmi", "--all", "--force", check=False)
        said_by("umount", str(place / driver / driver), check=False)


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


@pytest.fixture(scope="module")
def images(storage: Path) -> list[str]:
    """The names of both, built here, and loaded from the archives that a release has of them."""
    mirror = " ".join(f"--volume {top}:{top}:ro" for top in places_of_pip())
    built = subprocess.run(
        [ROOT / "deploy" / "image" / "build", NAME],
        env={**os.environ, "RUN_OPTIONS": mirror, "TMPDIR": str(storage)},
        cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    RELEASE.export_images(NAME, storage / f"{RELEASE.NAME}-{VERSION}")
    return RELEASE.load_images(storage, VERSION)


def test_it_is_small_and_healthy(images: list[str], tmp_path: Path) -> None:
    packed = tmp_path / "packed"  # as a registry stores it
    said_by("buildah", "push", "--quiet", images[0], f"dir:{packed}")
    assert sum(path.stat().st_size for path in packed.iterdir()) <= MOST_BYTES
    shutil.rmtree(packed)
    with RELEASE.container(tmp_path, images[0], VERSION) as (port, name):
        until(lambda: "ready: page" in (tmp_path / f"{port}.log").read_text(), 120)
        said_by("podman", "healthcheck", "run", name)
        (told,) = json.loads(said_by("podman", "inspect", name).stdout)
        assert told["HostConfig"]["ReadonlyRootfs"]
        whose = said_by("podman", "exec", name, "stat", "-c", "%u", ".", "node.sqlite3").stdout
        assert whose.split() == ["10001", "10001"]


def test_nothing_tells_of_the_machine_that_built_it(images: list[str]) -> None:
    for image in images:
        container = said_by("buildah", "from", image).stdout.strip()
        root = Path(said_by("buildah", "mount", container).stdout.strip())
        for name in ("hostname", "hosts", "resolv.conf"):
            assert (root / "etc" / name).read_text() == "", name
        mounted = ("/source", "/etc/pip.conf", *places_of_pip())
        left = [each for each in mounted if (path := root / each[1:]).exists() and is_empty(path)]
        assert left == []
        said_by("buildah", "rm", container)


def is_empty(path: Path) -> bool:
    return not (any(path.iterdir()) if path.is_dir() else path.stat().st_size)


def test_a_whole_node_makes_a_report(images: list[str], tmp_path: Path) -> None:
    with RELEASE.container(tmp_path, images[1], VERSION) as (_, name):
        node = ("podman", "exec", name, "messaging-node")
        said_by(*node, "traffic_generate", "--rows", "5000", "--days", "1", "--seed", "7")
        made = said_by(*node, "shell", "--no-imports", "-c", REPORT).stdout
        state, *rows = made.split()
        assert state == "done" and int(rows[0]) > 0, made
