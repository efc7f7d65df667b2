"""The numbered cases of the language: each says in `why` what it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies.authoring.cases import run_case

CASES = [
    json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_decides_as_the_case_expects(case):
    assert run_case(case).faults == ()


def test_all_cases_are_there():
    assert len({case["id"] for case in CASES}) == 82


@pytest.mark.parametrize("key", ["expect", "deliver", "auth", "obligations", "delivered"])
def test_a_case_with_a_wrong_expectation_fails(key):
    case = next(case for case in CASES if key in case)
    assert run_case({**case, key: "something else"}).faults
