"""Ready connections: what each is ready for, and sockets closed without a word."""

from __future__ import annotations

import socket

import pytest

from msgnode.servers.readiness import ENDED, HAS_EPOLL, READABLE, WRITABLE, Readiness

pytestmark = pytest.mark.skipif(not HAS_EPOLL, reason="this system has no epoll")


def test_each_is_told_with_what_it_is_ready_for_until_it_is_served() -> None:
    ready = Readiness()
    here, there = socket.socketpair()
    with here, there:
        ready.watch(here.fileno(), here, READABLE)
        assert ready.now() == []
        there.send(b"x")
        for _ in range(2):
            [(fd, events)] = ready.now()
            assert (ready.transports[fd], events & ENDED) == (here, 0)
        here.recv(1)
        assert ready.now() == []
        there.close()
        [(_, events)] = ready.now()
        assert events & ENDED


def test_what_is_ignored_is_told_no_more_and_the_rest_is() -> None:
    ready = Readiness()
    here, there = socket.socketpair()
    with here, there:
        fd = here.fileno()
        ready.watch(fd, here, READABLE)
        ready.watch(fd, here, WRITABLE)
        there.send(b"x")
        ready.ignore(fd, here, READABLE)
        [(_, events)] = ready.now()
        assert events & WRITABLE
        assert not events & READABLE
        ready.ignore(fd, here, WRITABLE)
        assert ready.now() == []
        assert not ready.transports


def test_a_descriptor_closed_without_a_word_is_that_of_who_comes_next() -> None:
    ready = Readiness()
    gone, _other = socket.socketpair()
    fd = gone.fileno()
    ready.watch(fd, gone, READABLE)
    gone.close()
    here, there = socket.socketpair()
    with here, there, _other:
        assert here.fileno() == fd
        ready.watch(fd, here, READABLE)
        ready.ignore(fd, gone, READABLE)
        there.send(b"x")
        assert [ready.transports[number] for number, _ in ready.now()] == [here]


def test_what_is_closed_already_can_be_ignored() -> None:
    ready = Readiness()
    here, there = socket.socketpair()
    fd = here.fileno()
    ready.watch(fd, here, READABLE)
    here.close()
    there.close()
    ready.ignore(fd, here, READABLE)
    assert not ready.transports
