"""The leak guard: pool images that are copies or near copies of evaluation images, found exactly and listed with reasons."""

from odst.duplicates.artefacts import audit
from odst.duplicates.rule import Rule
from odst.duplicates.scan import Guard
from odst.duplicates.search import Pairs, near_pairs

__all__ = ["Guard", "Pairs", "Rule", "audit", "near_pairs"]
