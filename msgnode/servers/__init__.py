"""The ASGI server of a worker: Daphne, adapted for speed."""
