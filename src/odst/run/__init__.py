"""One run: from a config to rounds in a directory."""
