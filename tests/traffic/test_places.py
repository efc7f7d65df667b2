"""Node and Spark open the record by the same code, which is in what is shipped to executors."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from spark.jobs import places


def test_an_object_store_is_found_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    system, path = places.place("s3://bucket/node/raw")
    assert path == "bucket/node/raw"
    assert places.is_object_store(system)
    with pytest.raises(OSError, match=r"(?i)connect"):
        system.get_file_info(fs.FileSelector(path))


def test_a_folder_and_what_is_not_there_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("")
    system, path = places.place(str(tmp_path / "a"))
    places.delete_folder(system, path)
    assert not (tmp_path / "a").exists()
    places.delete_folder(system, path)
    assert not places.is_object_store(system)
