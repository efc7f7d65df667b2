"""Lists of pool addresses: lines, ranges and files, with the fault of each line."""

from __future__ import annotations

import pytest

from msgnode.console.pool_import import MOST, of_file, of_text


def test_lines_and_ranges_become_addresses_in_order_and_once():
    text = """
    # the front desk
    sip:desk@example.org
    sip:guest{08-11}@example.org
    sip:guest09@example.org
    """
    assert of_text(text, "sip").addresses == [
        "sip:desk@example.org",
        *(f"sip:guest{n}@example.org" for n in ("08", "09", "10", "11")),
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("tel:+4930123", "is no sip address"),
        ("guest@example.org", "is no sip address"),
        ("sip:", "names nobody"),
        ("sip:a b@example.org", "contains a blank"),
        ("sip:{1-2}{1-2}@example.org", "more than one range"),
        ("sip:{a-b}@example.org", "a range is written"),
        ("sip:{9-1}@example.org", "the range ends before it begins"),
        ("sip:{1-200000}@example.org", f"more than {MOST:,} addresses"),
        ("sip:" + "x" * 700, "longer than 600"),
        ("sip:\x00", "control character"),
    ],
)
def test_a_fault_names_its_line(line, fault):
    lines = of_text(f"sip:one@example.org\n{line}\nsip:two@example.org", "sip")
    assert lines.addresses == ["sip:one@example.org", "sip:two@example.org"]
    (found,) = lines.faults
    assert found.startswith("line 2: ")
    assert fault in found


def test_the_first_column_of_a_file_counts():
    content = '\ufeffaddress,note\r\nsip:one@example.org,"a, b"\r\n\r\n"sip:{2-3}@x",\r\n'.encode()
    assert of_file(content, "sip").addresses == ["sip:one@example.org", "sip:2@x", "sip:3@x"]


def test_a_file_that_is_no_text_is_refused():
    assert of_file(b"\xff\xfe\x00", "sip").faults == ["The file is not UTF-8 text."]


def test_faults_have_an_end():
    assert len(of_text("no address\n" * 1000, "sip").faults) == 21
