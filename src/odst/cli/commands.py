"""Importing a command's module registers it: the order here is the order of `odst --help`."""

from odst.cli import data, demo, pool, run  # noqa: F401
