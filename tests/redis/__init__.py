"""Redis as the node uses it: client, channel layer, directory, limits; each with real servers.

servers.py starts them: alone, with sentinels, as a cluster. What workers make of it is in
tests/workers, that a node starts on each kind in tests/e2e/test_redis_kinds.py.
"""
