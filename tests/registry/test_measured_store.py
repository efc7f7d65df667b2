"""The store that `make bench PART=registry` measures is filled and searched like the tables."""

from __future__ import annotations

import pytest

from bench import registry_store


@pytest.mark.django_db(transaction=True)
def test_what_is_entered_for_a_measurement_is_found_by_every_key() -> None:
    registry_store.fill(12)
    times = registry_store.search_times(12, 2)
    assert {key: len(found) for key, found in times.items()} == dict.fromkeys(times, 2)
