"""`manage.py run`: prepare the data directory, start the programs, report readiness, stop them all.

prepare         what must exist before anything starts, and errors that can be found beforehand
prepared        what an earlier start has already done
programs        supervisord as a child process: start, look, stop
background      whether worker and beat run, judged by their signs of life
readiness       whether the node is ready
when_ready      what is started once the node is ready
address         the address of the node of a data directory
second          a second node beside a first
redis           a Redis started with the node
make_parent     detects that a parent `make` was told to stop
stop_flag       the flag that signal handlers set
pdeathsig       starts a program that ends with its parent
error_messages  why a start failed, in words

Neither the node nor the worker or beat imports any of it.
"""
