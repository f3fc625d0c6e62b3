"""What a run can be expected to find, from a quick base's look at a random part of the pool: forecast.json."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.images import Data, Pool
from odst.data.sources import split_spec
from odst.errors import UserError
from odst.evaluation.shares import Shares, related_shares
from odst.files import write_json
from odst.method.calibration import top_log_odds
from odst.method.labelling import Predictions
from odst.recipe import Recipe
from odst.rounds import calibrated
from odst.run.config import FORECAST_FILE, Config
from odst.run.directory import RunDir
from odst.run.quick_base import Rows, scan_pool
from odst.run.sealed import read_json
from odst.self_training import admission

FORMAT = 2
ENOUGH, TOO_FEW = 1.0, 0.1  # related images for every labelled one: worth it from here on, hopeless below


@dataclass(frozen=True)
class ClassOutlook:
    """One class of the pool."""

    share: tuple[float, float, float]  # the lower end, the best guess and the upper end of a 95 % interval
    above: int  # pool images above the config's thresholds, by the quick base: the run's own base is another model
    promised: float  # the largest precision that val_out can promise of what is taken


@dataclass(frozen=True)
class Outlook:
    scanned: int
    images: int  # of the pool, without those excluded
    labelled: int
    related: tuple[float, float, float]
    misfit: float
    doubtful: bool
    val_out: str  # given, from the pool, or none
    classes: dict[str, ClassOutlook]
    rounds: list[int]  # k of each

    @property
    def first(self) -> int:
        """Images that the first round would select with the quick base as its teacher. Those of later rounds nobody knows: their
        teachers are still to be trained."""
        return sum(min([one.above, *self.rounds[:1]]) for one in self.classes.values())

    def most(self, t: int) -> int:
        """Images that the round after t can select."""
        return self.rounds[t] * len(self.classes)

    @property
    def verdict(self) -> tuple[bool | None, str]:
        """Whether it is worth it, None where that cannot be said, and why."""
        low, best, high = (share * self.images for share in self.related)
        if high < TOO_FEW * self.labelled:
            return False, f"at most {high:,.0f} related images for {self.labelled:,} labelled ones"
        if self.rounds and self.first == 0:
            return False, "the quick base finds no image above the thresholds: the first round would select nothing"
        if low >= ENOUGH * self.labelled:
            return True, f"at least {low:,.0f} related images for {self.labelled:,} labelled ones"
        return (
            None,
            f"{low:,.0f} to {high:,.0f} related images, probably {best:,.0f}, for {self.labelled:,} labelled ones",
        )

    def to_json(self) -> dict[str, Any]:
        worth, why = self.verdict
        return {
            "format": FORMAT,
            "scanned": self.scanned,
            "images": self.images,
            "labelled": self.labelled,
            "related": list(self.related),
            "misfit": self.misfit,
            "doubtful": self.doubtful,
            "val_out": self.val_out,
            "classes": {name: {**vars(one), "share": list(one.share)} for name, one in self.classes.items()},
            "rounds": [
                {"round": t + 1, "k": k, "most": self.most(t), "selected": None if t else self.first}
                for t, k in enumerate(self.rounds)
            ],
            "worth_it": worth,
            "why": why,
        }  # fmt: skip


def look_ahead(config: Config, data: Data, scan: int, device: str) -> Outlook:
    """Train the quick base, scan a part of the pool, and put what they say into numbers."""
    if data.pool is None:
        raise UserError("forecast: this config has no pool to look at. Set data.pool.")
    seed, recipe, origin = config.run.seed, config.recipe(), val_out_from(config)
    found = scan_pool(data, scan, seed=seed, device=device)
    base = calibrated(recipe, data, 0, found.model, None, device)
    shares = related_shares(base.logits_in, data.val_in.y, base.logits_out, found.logits, base.temperature)
    if origin == "from the pool":
        # it holds images of the classes, and the likest were taken out of it: neither end can be had from it
        blind = related_shares(base.logits_in, data.val_in.y, None, found.logits, base.temperature)
        shares = replace(
            shares, low=np.zeros(data.K), high=np.maximum(blind.high, shares.best),
            related=(0.0, shares.related[1], max(blind.related[2], shares.related[1])),
        )  # fmt: skip
    images = len(data.pool) - len(data.pool.excluded)
    part = Pool(Rows(data.pool.x, found.ids))
    tau, _ = admission(recipe, Predictions(found.logits, base.temperature), base, part)
    c, odds = top_log_odds(found.logits, base.temperature)
    above = np.bincount(c[odds > tau[c]], minlength=data.K)
    ks = [recipe.per_class(t, len(data.labelled), data.K) for t in range(recipe.rounds)]
    n_out = 0 if base.logits_out is None else len(base.logits_out)
    classes = {
        name: _class(shares, i, round(above[i] / len(found.ids) * images), images, n_out, recipe, ks)
        for i, name in enumerate(data.classes)
    }
    return Outlook(
        len(found.ids), images, len(data.labelled), shares.related, shares.misfit, shares.doubtful, origin, classes, ks
    )  # fmt: skip


def _class(shares: Shares, c: int, above: int, images: int, n_out: int, recipe: Recipe, ks: list[int]) -> ClassOutlook:
    taken = above if recipe.pick == "spread" else min([above, *ks[:1]])
    promised = max(0.0, 1 - images / ((n_out + 1) * taken)) if taken and n_out else 0.0
    return ClassOutlook((float(shares.low[c]), float(shares.best[c]), float(shares.high[c])), above, promised)


def val_out_from(config: Config) -> str:
    """given, from the pool (rows of a packed one, as `odst init` takes them), or none."""
    if config.data.world or config.data.task:
        return "given"
    specs = (config.data.val_out,) if isinstance(config.data.val_out, str) else config.data.val_out or ()
    if not specs:
        return "none"
    return "from the pool" if any("rows" in split_spec(spec)[1] for spec in specs) else "given"


def write_outlook(folder: Path, outlook: Outlook, seconds: float, disk: float) -> None:
    write_json(folder / FORECAST_FILE, outlook.to_json() | {"seconds": seconds, "disk_bytes": disk})


def read_outlook(run: RunDir) -> dict[str, Any] | None:
    """forecast.json; None where nobody asked for a forecast."""
    file = run.path / FORECAST_FILE
    if not file.is_file():
        return None
    found = read_json(file)
    if found.get("format") != FORMAT or not {"classes", "related", "rounds", "seconds"} <= found.keys():
        raise UserError(f"{file}: this is no forecast that this odst can read. Make it again with `odst forecast`.")
    return found


def described(outlook: Outlook) -> list[str]:
    """The part of the page that a scan adds."""
    low, best, high = outlook.related
    lines = [
        f"scanned     {outlook.scanned:,} pool images, chosen at random, by a quick base",
        f"related     {_percent(best)} of the pool (95 %: {_percent(low)} to {_percent(high)}), "
        f"about {best * outlook.images:,.0f} images",
    ]
    width = max(5, *(min(len(name), 14) for name in outlook.classes))
    lines.append(f"{'class':<{width}}  {'share (95 %)':>18}  {'above thresholds':>16}  val_out promises")
    for name, one in outlook.classes.items():
        share = f"{_percent(one.share[1])} ({_bare(one.share[0])}-{_bare(one.share[2])})"
        most = f"{100 * one.promised:.0f} % at most" if one.promised else "nothing"
        short = name if len(name) <= width else name[: width - 1] + "…"
        lines.append(f"{short:<{width}}  {share:>18}  {one.above:>16,}  {most}")
    if outlook.rounds:
        lines.append(
            f"selected    about {outlook.first:,} of at most {outlook.most(0):,} in round 1, if the run's base were the quick one"
        )
        later = ", ".join(f"{outlook.most(t):,} in round {t + 1}" for t in range(1, len(outlook.rounds)))
        if later:
            lines.append(f"            at most {later}: how many, their teachers will say")
    if outlook.val_out == "from the pool":
        lines.append("val_out     is drawn from the pool, so no share has a lower end: look at it with `odst review`")
    elif outlook.val_out == "none":
        lines.append("val_out     there is none, so no share has a lower end, and nothing can be promised")
    if outlook.doubtful:
        lines.append(
            f"careful     val_in and val_out are not like the pool (misfit {outlook.misfit:.1f}, 1 is a fit): the intervals are "
            "wider for it, and may still be too narrow"
        )
    worth, why = outlook.verdict
    return [*lines, f"worth it    {'hard to say' if worth is None else 'yes' if worth else 'no'}: {why}"]


def _percent(share: float) -> str:
    return f"{_bare(share)} %"


def _bare(share: float) -> str:
    return (
        f"{100 * share:.0f}" if share >= 0.0995 or share == 0 else f"{100 * share:.1f}" if share >= 0.0005 else "<0.1"
    )
