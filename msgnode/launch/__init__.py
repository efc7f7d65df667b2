"""`manage.py run`: prepare the data directory, start the programs, say ready, stop them all.

prepare   what must exist before anything starts, and the faults that can be named beforehand
prepared  what an earlier start has done already
programs  supervisord as our child: start, look, stop
readiness when the node answers, and why it does not
address   where the node of a data directory answers
parent    a `make` in front of us that was told to stop
tied      starts a program that ends when its parent does

None of it is imported by the node, the worker or beat.
"""
