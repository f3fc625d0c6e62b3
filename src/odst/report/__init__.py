"""A run directory -> pages and tables."""
