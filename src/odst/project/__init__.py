"""A new user's folders -> a config that runs."""
