"""`manage.py run`: prepare the data directory, start the programs, report readiness, stop them all.

prepare         what must exist before anything starts, and errors that can be found beforehand
prepared        what an earlier start has already done
programs        supervisord as a child process: start, look, stop
background      whether worker and beat run, judged by their signs of life
readiness       whether the node is ready, and where it is
when_ready      what is started once the node is ready
second          a second node beside a first
stopping        what stops the launcher: a signal, or a parent `make` that was told to stop
pdeathsig       starts a program that ends with its parent
error_messages  why a start failed, in words

Neither the node nor the worker or beat imports any of it.
"""
