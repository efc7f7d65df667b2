"""Runs that have failed once, each with the sentence that tells what was wrong in the product."""

from __future__ import annotations

from .scenario import Fault

KEPT: list[tuple[str, int, list[Fault]]] = [
    (
        "an event of a worker that was cut off did not reach who had begun to listen elsewhere "
        "meanwhile, and nobody was told",
        23,
        [Fault(9.68, "redis cut", 0, 12.0)],
    ),
    (
        "what a worker could not enter in a full Redis was not told to those whose links were down "
        "meanwhile: they did not know who listens, and lost events without a word",
        45,
        [Fault(6.45, "redis is full", 0, 8.00)],
    ),
    (
        "a worker stopped while links were down, and left its sessions as complete: what others "
        "had for them, or could not know that they listen to, was lost, and nobody was told",
        59,
        [Fault(8.82, "redis is frozen", 0, 8.00), Fault(16.58, "stop", 3, 1.00)],
    ),
    (
        "a worker took what was left at its start and then did not reach Redis: nobody took it "
        "from there, as nobody had heard of that worker",
        24,
        [
            Fault(10.99, "redis cut", 2, 1.00), Fault(14.55, "database is away", 3, 4.50),
            Fault(18.67, "redis cut", 1, 8.00), Fault(19.83, "commit refused", 2, 1.00),
            Fault(20.54, "redis is frozen", 1, 2.50),
        ],
    ),
    (
        "a session in a full Redis, which could be read there, was taken for one that nobody has: "
        "its runtime got a new one",
        61,
        [Fault(4.30, "redis is full", 0, 8.00), Fault(5.08, "kill", 0, 8.00)],
    ),
    (
        "a session was handed to a worker that could not write so and ended: its row still named "
        "the giver, so nobody took it over",
        81,
        [
            Fault(6.01, "runtime is silent", 0, 2.50), Fault(6.63, "redis cut to", 0, 4.50),
            Fault(9.31, "database cut", 3, 8.00),
        ],
    ),
    (
        "that a slow reader had caught up was lost with a link that was down on one side only: who "
        "sent to it was held back for ever",
        54,
        [Fault(6.16, "runtime does not read", 3, 12.00), Fault(8.88, "redis cut from", 3, 4.50)],
    ),
    (
        "a session came to the worker that had lost its messages while links were down: the worker "
        "it had left was told, took that for known there, and nobody told the runtime",
        1216,
        [
            Fault(4.55, "runtime is silent", 0, 4.50), Fault(10.61, "redis cut from", 1, 12.00),
            Fault(18.70, "runtime is silent", 0, 4.50),
        ],
    ),
    (
        "in a full Redis it could not be found out whose the address is that a response is for: it "
        "was dropped, and nobody was told",
        1294,
        [Fault(12.71, "redis is full", 1, 2.50)],
    ),
    (
        "a runtime came back to a full queue, and the next message ended its socket as too slow, "
        "though it read",
        1308,
        [Fault(12.91, "runtime does not read", 3, 8.00)],
    ),
    (
        "a runtime subscribed again what still waited for another domain: it was answered 200, and "
        "the subscription was taken back when the first request was too late",
        62,
        [Fault(12.71, "runtime does not read", 1, 12.00)],
    ),
    (
        "two nodes reached each other by stubs, and the events of who had also sent a request were "
        "refused: his address counted as that of another session of the same node",
        7,
        [],
    ),
    (
        "a phone had fetched what it was woken for, and got more before the node had noticed: it "
        "was never woken again",
        15,
        [],
    ),
    (
        "a request of a device came to a worker that could not ask who has its session, and was "
        "told that this has ended: a network server opened another one, and was posted all twice",
        20040,
        [Fault(4.37, "redis comes back empty", 2, 0.30)],
    ),
    (
        "a worker that was cut off Redis took the sessions of one that was frozen: their runtimes "
        "came to a third one, which could not find them, and got new sessions",
        20094,
        [Fault(11.37, "freeze", 2, 8.00), Fault(12.54, "redis cut", 3, 12.00)],
    ),
    (
        "the exchange with another domain was paused, and a message that another worker had passed "
        "on to its node's session was answered 404, though its address was there",
        70162,
        [Fault(6.20, "peers are paused", 3, 12.00)],
    ),
    (
        "an operator ended a session while its worker could not reach the database, and what this "
        "still had to write, that the socket was gone, had the session live again",
        70178,
        [Fault(20.42, "database is away", 0, 8.00), Fault(20.56, "session is ended", 3, 4.50)],
    ),
]  # fmt: skip
