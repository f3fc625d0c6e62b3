"""A finished run in use."""
