"""A model's outputs -> named numbers."""
