"""`manage.py run`: prepare the data directory, start the programs, say ready, stop them all.

prepare         what must exist before anything starts, and the faults that can be named beforehand
prepared        what an earlier start has done already
programs        supervisord as our child: start, look, stop
readiness       when the node answers, and why it does not
when_ready      what is started once the node is ready
address         where the node of a data directory answers
second          a second node beside a first
redis           a Redis of the node's own
make_parent     a `make` in front of us that was told to stop
told_to_stop    that a signal has told us to stop
pdeathsig       starts a program that ends when its parent does
error_messages  why a start failed, in words

None of it is imported by the node, the worker or beat.
"""
