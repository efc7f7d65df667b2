"""`manage.py report_run` says what is wrong with what it is given."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_period_that_is_no_time_is_named(option: str) -> None:
    with pytest.raises(CommandError, match="'yesterday' is not a date or time such as"):
        call_command("report_run", "hourly", option, "yesterday")
