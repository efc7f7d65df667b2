"""README.md and docs/install.md followed to the letter on a bare Debian, by a user who is not root.

The machine has what the pages ask for, make and Python, and nothing else: a tree of Debian of the
test's own. It shares the network with this machine, and where pip is told to look for packages. The
checkout is in a path with a blank; in /opt and /srv the user may write.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.launched import Launched
from tests.e2e.test_image import needs_debians_archive, places_of_pip
from tests.node import ROOT, free_port
from tests.services import needs_program

USER = "64321"
SET_UP_SECONDS = 1500.0
SUITE, PYTHON = "trixie", "3.13"
OF_THIS_MACHINE = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
)
OF_THE_INDEX = ("PIP_", "UV_", "SSL_CERT_")

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2 * SET_UP_SECONDS),
    pytest.mark.xdist_group("newcomer"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]


class Machine:
    """A bare Debian. `home` is the user's, and has the checkout."""

    def __init__(self, place: Path) -> None:
        self.root, self.home = place / "root", place / "home"
        self.checkout = self.home / "a node"
        self.root.mkdir()
        command = ["mmdebstrap", "--quiet", "--variant=minbase"]
        command += ["--include=make,python3,python3-venv,ca-certificates", SUITE]
        run(*command, place / "tree.tar")
        run("tar", "-xf", place / "tree.tar", "-C", self.root, "--exclude", "./dev/*")
        (place / "tree.tar").unlink()
        for name in OF_THIS_MACHINE:
            if (ours := Path("/etc", name)).exists():
                (self.root / "etc" / name).write_bytes(ours.read_bytes())
        with (self.root / "etc" / "passwd").open("a") as users:
            users.write(f"newcomer:x:{USER}:{USER}::{self.home}:/bin/sh\n")
        self.home.mkdir()
        run("git", "clone", "--quiet", ROOT, self.checkout)
        run("chown", "--recursive", f"{USER}:{USER}", self.home)
        place.chmod(0o755)

    def empty(self) -> None:
        """Nothing is in /opt and /srv any more."""
        for name in ("opt", "srv"):
            shutil.rmtree(self.root / name)
            (self.root / name).mkdir()
            (self.root / name).chmod(0o777)

    def shared(self) -> list[Path]:
        """What is at the same place there as on this machine."""
        return [*map(Path, ("/proc", "/sys", "/dev", *places_of_pip())), self.home]

    def as_user(self, script: str) -> list[str]:
        """The command that has the user run a shell's script in the home folder."""
        mounts = "".join(
            f'mkdir -p "$0{path}"; mount --rbind "{path}" "$0{path}"; ' for path in self.shared()
        )
        enter = (
            f'exec /usr/sbin/chroot "$0" setpriv --reuid {USER} --regid {USER} --clear-groups '
            '--no-new-privs sh -euc "cd; $1"'
        )
        own = ("unshare", "--mount", "--propagation", "private")
        return [*own, "sh", "-euc", mounts + enter, str(self.root), script]

    @property
    def environment(self) -> dict[str, str]:
        """That of a log-in, with what pip is told here."""
        told = {name: os.environ[name] for name in os.environ if name.startswith(OF_THE_INDEX)}
        return {
            **told, "HOME": str(self.home), "PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "", "CI": ""
        }  # fmt: skip


def run(*command: object) -> None:
    """It has to succeed."""
    subprocess.run([str(word) for word in command], check=True, timeout=600)


@pytest.fixture(scope="module")
def debian() -> Iterator[Machine]:
    needs_program("mmdebstrap")
    needs_debians_archive()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as place:
        yield Machine(Path(place))


@pytest.fixture
def machine(debian: Machine) -> Machine:
    """With nothing that a test before has installed."""
    debian.empty()
    return debian


def commands(page: str, section: str) -> list[str]:
    """What a section of a page has set as code, block by block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^ {4,}\S.*\n)+", text, re.MULTILINE)
    return [re.sub(r"^ +", "", block, flags=re.MULTILINE) for block in blocks]


def serves_until_it_is_told_to_stop(node: Launched) -> None:
    node.line_with("ready:", SET_UP_SECONDS)
    with httpx.Client(base_url=f"http://127.0.0.1:{node.port}", trust_env=False) as client:
        for path in ("/health/ready", "/", "/login/", "/static/msgnode/console.css"):
            assert client.get(path, timeout=60).status_code == 200, path
    node.line_with("in the background:", SET_UP_SECONDS)
    assert node.program("msgnode.servers.main").uids().real == int(USER)
    os.killpg(node.pid, signal.SIGINT)  # as Ctrl-C does
    node.status()
    assert node.survivors(20.0) == []
    assert "Traceback" not in node.text()


def test_make_run_sets_everything_up_in_a_path_with_a_blank(machine: Machine) -> None:
    command = machine.as_user("cd 'a node'; exec make run")
    data = machine.checkout / "var"
    with Launched(data, free_port(), command, machine.environment) as node:
        serves_until_it_is_told_to_stop(node)
        assert f"Python {PYTHON}." in node.text()
    assert data.stat().st_uid == int(USER)


def test_the_short_tests_of_what_needs_no_server_pass_with_this_python(machine: Machine) -> None:
    folders = "tests/core tests/bus tests/policies tests/sessions"
    done = subprocess.run(
        machine.as_user(f"cd 'a node'; make test ARGS='{folders}' 2>&1"),
        env=machine.environment, stdout=subprocess.PIPE, text=True, timeout=SET_UP_SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"^=.* (\d+) passed", done.stdout, re.MULTILINE)
    assert passed and int(passed[1]) > 1000, done.stdout[-4000:]
    assert f"python {PYTHON}." in done.stdout.lower()


@pytest.fixture
def released(machine: Machine) -> None:
    """Wheel and lock in the user's home, under the names that they have in a release."""
    words = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*words, "--no-index", "--wheel-dir", machine.home, ROOT)
    (wheel,) = machine.home.glob("messaging_node-*.whl")
    lock = machine.home / f"{'-'.join(wheel.name.split('-')[:2])}.requirements.lock"
    lock.write_bytes((ROOT / "requirements.lock").read_bytes())


def test_the_wheel_is_installed_and_run_by_the_pages_commands(
    machine: Machine, released: None
) -> None:
    install, _without_network = commands("docs/install.md", "From the wheel")
    assert "--require-hashes" in install
    assert "messaging-node run" in install
    runs_from_srv(machine, install)


def test_without_a_network_the_wheel_is_installed_from_a_folder(
    machine: Machine, released: None
) -> None:
    """The folder is filled by a pip elsewhere; from then on no index can be asked."""
    make, locked, *rest = commands("docs/install.md", "From the wheel")[0].splitlines()
    *fetch, offline = commands("docs/install.md", "From the wheel")[1].splitlines()
    assert "--require-hashes" in locked and "--no-index" in offline
    elsewhere = "python3 -m venv elsewhere"
    cut_off = "export PIP_INDEX_URL=http://127.0.0.1:9/ PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS="
    there = [f"PATH=$HOME/elsewhere/bin:$PATH {line}" for line in fetch]
    runs_from_srv(machine, "\n".join([elsewhere, *there, cut_off, make, offline, *rest]))


def runs_from_srv(machine: Machine, script: str) -> None:
    """What the script starts serves, and writes where the page says."""
    data = machine.root / "srv" / "node" / "var"
    command = machine.as_user(f"unset DATA_DIR\n{script}")
    with Launched(data, free_port(), command, machine.environment) as node:
        serves_until_it_is_told_to_stop(node)
    assert data.stat().st_uid == int(USER)
