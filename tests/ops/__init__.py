"""What supervisors, scrapers and authors of clients ask: health, metrics, AsyncAPI."""
