"""The ledger of the message path: what runs for every message is what was measured last."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import ledger


def test_the_message_path_is_the_one_that_was_measured_last() -> None:
    latest = ledger.entries()[0]
    assert latest["message_path"] == ledger.digest(), (
        "What runs for every message has changed since it was measured: run "
        "`python -m bench.ledger` on an idle machine, and commit bench/ledger.json."
    )


def test_each_figure_is_compared_with_an_earlier_version_and_with_nodejs() -> None:
    for entry in ledger.entries():
        assert entry["median_low_high"].keys() == ledger.LOADS.keys()
        for figures in entry["median_low_high"].values():
            assert {key.partition(" : ")[2] for key in figures} == {ledger.BEFORE, ledger.NODEJS}


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ("'''Another head.'''\nx = 1\n", False),
        ("'''Head.'''\n\n# Why.\nx = 1  # so\n", False),
        ("'''Head.'''\nx = 2\n", True),
        ("'''Head.'''\nx = '''text'''\n", True),
    ],
)
def test_comments_and_docstrings_are_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, counts: bool
) -> None:
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    monkeypatch.setattr(ledger, "MESSAGE_PATH", ("*.py",))
    source = tmp_path / "a.py"
    source.write_text("'''Head.'''\nx = 1\n")
    before = ledger.digest()
    source.write_text(changed)
    assert (ledger.digest() != before) == counts


def test_what_is_measured_is_there() -> None:
    for pattern in ledger.MESSAGE_PATH:
        assert [*ledger.ROOT.glob(pattern)], f"{pattern} names no file"
