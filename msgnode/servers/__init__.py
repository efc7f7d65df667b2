"""The ASGI servers of a worker, Daphne or uvicorn, and what both share."""
