"""What a worker watches in itself."""
