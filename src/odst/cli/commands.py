"""Importing a command's module registers it: the order here is the order of `odst --help`."""

from odst.cli import compare, data, dedup, demo, evaluate, export, init, pool, predict, report, run  # noqa: F401
