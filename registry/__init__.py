"""The domain registry: where hyperties and data objects are registered and found."""
