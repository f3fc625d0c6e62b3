"""Whose vectors these are. Without torch: pools are looked at, and pictures embedded, by processes that do without it."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from odst.files import digest


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What decides a vector. Vectors of two identities never meet."""

    name: str  # as asked for, without the size; of a file only its name, so that it may move
    revision: str  # package and version, the hub's tag or commit; empty where nobody says
    weights: str  # SHA-256
    size: int  # pixels a side
    dimension: int

    @property
    def slug(self) -> str:
        """A folder's name: efficientnet-lite1-1a2b3c4d"""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:60] + "-" + digest(asdict(self))[:8]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Identity":
        return cls(**value)

    def __str__(self) -> str:
        return f"{self.name} ({self.revision or 'no revision'}, weights {self.weights[:8]}, {self.size} px)"
