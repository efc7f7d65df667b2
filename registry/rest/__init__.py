"""HTTP interfaces of the registry: the field's own endpoints, and /api/v1."""
