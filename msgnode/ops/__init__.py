"""What a worker tells its operator about itself."""
