"""The servers a worker listens with: Daphne or uvicorn, and what both share."""
