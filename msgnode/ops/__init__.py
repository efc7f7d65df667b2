"""What supervisors and scrapers ask over HTTP: health and metrics."""
