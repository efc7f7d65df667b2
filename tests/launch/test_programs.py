"""Where supervisord is asked, whatever the data directory is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from msgnode.launch.programs import Programs


@pytest.mark.parametrize(("letter", "is_in_data_dir"), [("u", True), ("ü", False)])
def test_a_path_that_is_too_long_for_a_socket_is_measured_in_bytes(
    letter: str, is_in_data_dir: bool
) -> None:
    data_dir = Path("/srv") / (60 * letter)
    programs = Programs(Path("supervisord.conf"), data_dir, 1)
    assert len(os.fsencode(programs._socket)) < 100
    assert (programs._socket.parent == data_dir) is is_in_data_dir
    programs._short.close()
