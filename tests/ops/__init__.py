"""What supervisors and scrapers ask."""
