"""Random UUIDs: of the form that says so, and never twice, in no thread and no child process."""

from __future__ import annotations

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

from msgnode.core.random_ids import random_uuid


def test_a_random_uuid_is_one_of_version_4_in_its_usual_form() -> None:
    for _ in range(200):
        text = random_uuid()
        read = uuid.UUID(text)
        assert str(read) == text
        assert (read.version, read.variant) == (4, uuid.RFC_4122)


def test_all_bits_but_those_of_version_and_variant_are_random() -> None:
    ones, zeros = 0, 0
    for _ in range(200):
        number = uuid.UUID(random_uuid()).int
        ones |= number
        zeros |= ~number
    fixed = (0xF << 76) | (0b11 << 62)
    assert ones & zeros & ((1 << 128) - 1) == ((1 << 128) - 1) & ~fixed


def test_threads_are_given_none_twice() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = [
            each
            for some in threads.map(lambda _: [random_uuid() for _ in range(500)], range(8))
            for each in some
        ]
    assert len(set(made)) == len(made) == 4_000


FORKS = """
import os
from msgnode.core.random_ids import random_uuid
random_uuid()  # more than this one was fetched
for _ in range(2):
    if not os.fork():
        print(random_uuid(), flush=True)
        os._exit(0)
    os.wait()
print(random_uuid())
"""


def test_a_child_process_is_given_others_than_its_parent() -> None:
    made = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert len(set(made.stdout.split())) == 3
