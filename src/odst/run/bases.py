"""bases.json: labels alone and the bases that a run has tried at several weights of the rest, and which it took."""

from dataclasses import asdict, dataclass
from pathlib import Path

from odst.run.sealed import read_sealed, write_sealed

FILE = "bases.json"
ALONE = "labels-alone"  # the folder of the model of the labelled images alone


@dataclass(frozen=True)
class Base:
    name: str  # of its folder: labels-alone, weight-0.3; empty for the only base of a fixed weight, which is round 0
    key: str  # what it depends on, for runs that could share it
    rest_weight: float
    val_error: float
    val_nll: float  # calibrated for it
    val_od_auroc: float | None
    holds: bool  # as good on val_in as the labels alone, within the slack and a standard error
    taken: bool


def write_bases(run: Path, bases: list[Base]) -> None:
    lines = [asdict(one) for one in bases]
    write_sealed(run / FILE, {"bases": lines})


def read_bases(run: Path) -> list[Base]:
    """Of a run's folder; none for a run with a single base."""
    if not (run / FILE).exists():
        return []
    return [Base(**line) for line in read_sealed(run / FILE)["bases"]]
