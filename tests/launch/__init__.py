"""`manage.py run`: what it prepares, starts, watches and says, with programs of the test.

That a node starts, stops and names what is wrong is in tests/e2e/test_run.py.
"""
