"""The Java that Spark gets: the system's if it is new enough, else the bundled one by a shim.

The memory of a run is that of all its processes.

The process of a run stands back where others want the processor, and so does all it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark import java, process
from spark.job_main import Peak, family


def fake_java(place: Path, says: str) -> Path:
    program = place / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nfor word; do echo \"[$word]\"; done\n")
    program.chmod(0o755)
    return program


def test_versions_are_read_as_java_tells_them(tmp_path: Path) -> None:
    told = {'openjdk version "17.0.15" 2025-04-15': 17, 'java version "1.8.0_402"': 8, "no": 0}
    found = [java.version_of(str(fake_java(tmp_path / str(n), s))) for n, s in enumerate(told)]
    assert found == list(told.values())
    assert java.version_of(str(tmp_path / "nowhere")) == 0


def test_a_java_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "home", 'version "21.0.1"').parent.parent
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.environment(tmp_path)["JAVA_HOME"] == str(home)


def test_the_shim_leaves_out_the_module_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = fake_java(tmp_path / "bundled", 'version "17"')
    monkeypatch.setattr(java, "bundled_java", lambda: bundled)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", 'version "11"').parent.parent))
    monkeypatch.setenv("PATH", str(tmp_path))
    home = Path(java.environment(tmp_path / "data")["JAVA_HOME"])
    monkeypatch.undo()
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", "*"]
    said = subprocess.run(
        [str(home / "bin" / "java"), *words], capture_output=True, text=True, check=True
    )
    assert said.stdout.split("\n")[:-1] == ["[-Xmx1g]", "[-cp]", "[a b]", "[Main]", "[*]"]


def test_without_any_java_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(java.NoJava, match="Java 17"):
        java.environment(tmp_path)


def test_a_java_that_cannot_keep_classes_is_not_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = java.bundled_java()
    assert bundled is not None
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")  # the shim's /bin/sh is found without it
    assert java.environment(tmp_path)["JAVA_HOME"] == str(tmp_path / "java")
    assert not java.can_keep_classes(str(bundled))
    assert java.class_archive(tmp_path) is None


def test_classes_of_another_java_or_spark_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", 'version "21"').parent.parent))
    monkeypatch.setattr(java, "can_keep_classes", lambda program: True)
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "classes-old.jsa").write_text("")
    kept = java.class_archive(tmp_path)
    assert kept is not None
    kept.write_text("")
    monkeypatch.setattr(java, "version", lambda package: "99")
    assert java.class_archive(tmp_path) != kept
    assert list((tmp_path / "java").glob("*.jsa")) == []


def test_a_spark_that_is_not_installed_yet_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(java.NoSpark, match="make setup"):
        java.check_spark()


HOLDS_100_MB = "held = b'x' * 100_000_000; print('holds', flush=True); input()"


def test_a_process_that_was_started_and_has_ended_counts() -> None:
    before = Peak().mb()
    peak = Peak()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_100_MB],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "holds\n"
        assert child.pid in family(os.getpid())
        held = peak.mb()
        child.communicate("\n")
    assert child.pid not in family(os.getpid())
    assert held >= before + 95
    assert peak.mb() == held


SAYS = "import os, subprocess, sys; subprocess.run(['nice'], stdout=open(sys.argv[1], 'w'))"


def test_a_run_and_what_it_starts_have_the_niceness_of_the_settings(tmp_path: Path) -> None:
    told = tmp_path / "niceness"
    process.run(
        [sys.executable, "-c", SAYS, str(told)], os.environ, tmp_path / "log",
        time_limit=60.0, niceness=7, watch=lambda *_: True,
    )  # fmt: skip
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert int(told.read_text()) == max(own, 7)
