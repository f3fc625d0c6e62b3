"""`odst dedup`: the leak guard."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from odst.cli import Address, Fit, FollowLinks, Quiet, Shard, Verbose, Where, Workers, app
from odst.cli.results import AsJson, show
from odst.errors import UserError

if TYPE_CHECKING:
    from odst.data.images import Pool
    from odst.vision.perceptual import LpipsWeights

log = logging.getLogger("odst")


@app.command()
def dedup(
    pool: Annotated[str, Argument(metavar="POOL", help="A packed pool, or any source small enough for memory.")],
    against: Annotated[list[str], Option(metavar="REF", help="A set nothing in the pool may show. Repeatable.")],
    out: Annotated[Path | None, Option(metavar="DIR", help="Default: the packed pool, else NAME-dedup.")] = None,
    exact_against: Annotated[list[str] | None, Option(metavar="SRC", help="Exact copies of these leave.")] = None,
    listed: Annotated[list[Path] | None, Option("--list", metavar="FILE", help="Published, or a table of ids.")] = None,
    list_base: Annotated[int | None, Option(min=0, max=1, help="Whether unknown lists count from 0 or 1.")] = None,
    radius: Annotated[float, Option(help="L2 of candidates, pixels in [0,1].", show_default="2000/255")] = 2000 / 255,
    l2: Annotated[float, Option(help="L2 below which a candidate leaves.")] = 3.0,
    max_lpips: Annotated[float, Option(help="LPIPS below which a candidate looks alike.")] = 0.025,
    max_dissim: Annotated[float, Option(help="1 - SSIM below which a candidate looks alike.")] = 0.4,
    lpips: Annotated[str | None, Option(metavar="FILE|none", help="Weights. Without any, L2 alone decides.")] = None,
    ssim_alone: Annotated[bool, Option("--ssim-alone", help="Without LPIPS. It excludes far too much.")] = False,
    lpips_heads: Annotated[Path | None, Option(metavar="FILE", help="Beside a .pth [default: torchmetrics'].")] = None,
    lpips_input: Annotated[
        Literal["unit", "signed"], Option(help="LPIPS on [0,1], which fits the paper's 0.025, or on [-1,1], its own.")
    ] = "unit",
    size: Annotated[int, Option(min=4, max=1024, help="Height and width where nothing is packed.")] = 32,
    fit: Annotated[Fit, Option(help="How pictures become square. A packed pool has its own.")] = "crop",
    follow_links: FollowLinks = False,
    fresh: Annotated[bool, Option("--fresh", help="Forget what an earlier pass left in DIR.")] = False,
    workers: Workers = None,
    engine: Where = None,
    address: Address = None,
    shard: Shard = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """List pool images that show evaluation images.

    Writes excluded.parquet, which `odst run` honours, the histogram of nearest distances, sheets of pairs (pairs-*.png) and
    dedup.json. A pass that was cut goes on where it stopped. LPIPS needs weights: an .npz, or torchvision's AlexNet .pth; what
    `odst data get lpips-alexnet` left is found by itself.

    Does a test set leak into a training set? odst dedup train/ --against test/

    Example: odst dedup pool --against cifar10:test --exact-against train/
    """
    import numpy as np

    from odst.cli.screen import bars
    from odst.data.pool import is_packed
    from odst.data.reading import read_set
    from odst.data.remote import is_remote
    from odst.data.sources import spec_name
    from odst.duplicates import Guard, Rule, audit
    from odst.engine.choice import chosen

    rule = Rule(
        radius=radius, l2=l2, lpips=max_lpips, dissim=max_dissim, lpips_input=lpips_input, ssim_alone=ssim_alone
    )
    if follow_links:
        from odst.data.sources import following

        pool, against = following(pool), [following(one) for one in against]
        exact_against = [following(one) for one in exact_against or []]
    if is_remote(pool):
        raise UserError(
            f"{pool}: the leak guard leaves its list in the pool's folder. Give it a folder, and put the list into the bucket, or "
            "name it in data.excluded."
        )
    packed = is_packed(Path(pool))
    out = out or (Path(pool) if packed else Path(f"{spec_name(pool)}-dedup"))
    specs = [*against, *(exact_against or []), *map(str, listed or [])]
    names = _names(specs)
    with bars(quiet, verbose):
        fit = _fit(Path(pool), fit) if packed else fit
        U = _pool(pool, packed, size, fit)
        size = U.x.shape[1]
        if size != 32 and (radius, l2) == (2000 / 255, 3.0):
            _say_scale(size)
        weights = _weights(lpips, lpips_heads, size, ssim_alone)
        sets = len(specs) - len(listed or [])
        read = {name: read_set(spec, size, fit) for name, spec in zip(names[:sets], specs, strict=False)}
        guard = Guard(
            {name: read[name].x for name in names[: len(against)]},
            rule,
            weights,
            exact={
                name: {h: i for i, h in reversed(list(enumerate(read[name].hashes)))}
                for name in names[len(against) : sets]
            },
            listed={
                name: _ids(file, U, list_base, Path(pool) if packed else None)
                for name, file in zip(names[sets:], listed or [], strict=True)
            },
        )
        notes: dict[str, Any] = {
            "path": pool,
            "against": dict(zip(names, specs, strict=True)),
            "images": {name: len(found.x) for name, found in read.items()},
            "unreadable": {name: len(found.rejected) for name, found in read.items()},
            "size": size,
            "fit": fit,
        }
        sources = {name: np.array(found.uris, object) for name, found in read.items()}
        with chosen(engine, address, workers, shard=shard):
            summary = audit(U, guard, out, sources=sources, notes=notes, fresh=fresh)
    show(as_json, summary, [*_lines(summary, len(U), out), *_use(summary, pool, packed, out)])


def _pool(spec: str, packed: bool, size: int, fit: Fit) -> "Pool":
    import numpy as np

    from odst.data.images import Pool
    from odst.data.pool import open_pool
    from odst.data.reading import read_set
    from odst.duplicates.search import check_pictures

    if packed:
        U = open_pool(spec, every=True)
    else:
        found = read_set(spec, size, fit)
        U = Pool(found.x, sources=np.array(found.uris, object), hashes=np.array(found.hashes, object))
    check_pictures(spec, U.x)
    return U


def _fit(pool: Path, otherwise: Fit) -> Fit:
    """How the images of a packed pool became square; pools joined after different rules leave it to `otherwise`."""
    from odst.data.pool import packed_fits, read_manifest

    found = packed_fits(pool, read_manifest(pool))
    if len(found) > 1:
        log.warning(
            f"{pool}: the pools it joins were packed with --fit {' and '.join(sorted(found))}. The references follow "
            f"{otherwise}, so copies in the others may be missed: run `odst dedup` on each of the pools instead."
        )
    return found.pop() if len(found) == 1 else otherwise


def _say_scale(size: int) -> None:
    wide = size / 32  # L2 sums over pixels, so the same change is farther in a larger image
    log.warning(
        f"--radius and --l2 are the paper's, for 32×32 pixels. These are {size}×{size}, where the same change is {wide:.3g} "
        f"times as far: --radius {2000 / 255 * wide:.3g} --l2 {3 * wide:.3g} would judge alike."
    )


def _weights(lpips: str | None, heads: Path | None, size: int, ssim_alone: bool) -> "LpipsWeights | None":
    """Without any, say so, and what decides instead."""
    from odst.data.named.download import find
    from odst.vision.perceptual import SMALLEST, read_lpips_weights

    path = lpips or next(map(str, find("lpips-alexnet") or []), None)
    if ssim_alone and lpips not in (None, "none"):
        raise UserError(
            f"--ssim-alone and --lpips {lpips}: LPIPS either decides with SSIM or not at all. Give one of them."
        )
    if ssim_alone or path == "none":
        why = "as asked for"
    elif path is None:
        why = "no weights are here; `odst data get lpips-alexnet` fetches them"
    elif lpips is None and size < SMALLEST:
        why = f"it needs {SMALLEST}×{SMALLEST} pixels, these are {size}×{size}"
    else:
        return read_lpips_weights(path, heads)
    alone, leave = ("SSIM", "far more") if ssim_alone else ("L2", "fewer")
    log.warning(f"WITHOUT LPIPS ({why}): {alone} alone decides, and {leave} images leave than by the paper's rule.")
    return None


def _ids(file: Path, U: "Pool", base: int | None, pool: Path | None) -> Any:
    from odst.data.exclusions import check_numbering, read_ids
    from odst.data.pool import read_manifest

    if pool is not None:
        check_numbering(file, pool, read_manifest(pool))
    return read_ids(file, len(U), U.id, base)


def _names(specs: list[str]) -> list[str]:
    """A short name per set, none twice."""
    from odst.data.sources import spec_name

    names: list[str] = []
    for spec in specs:
        name = spec_name(spec)
        names.append(
            name if name not in names else next(f"{name}-{k}" for k in range(2, 10**6) if f"{name}-{k}" not in names)
        )
    return names


def _lines(summary: dict[str, Any], m: int, out: Path) -> list[str]:
    lines = [f"{summary['excluded_images']:,} of {m:,} images leave the pool."]
    for name, counts in summary["excluded"].items():
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.items()) or "nothing leaves"
        near = f"{summary['candidates'][name]:,} candidates; " if name in summary["candidates"] else ""
        lines.append(f"  {name}: {near}{reasons}")
    if not summary["lpips_used"]:
        lines.append(f"  WITHOUT LPIPS: {' and '.join(summary['decided_by'])} alone decided (recorded in dedup.json).")
    return [*lines, f"List, histogram and sheets of pairs: {out}"]


def _use(summary: dict[str, Any], pool: str, packed: bool, out: Path) -> list[str]:
    """What makes a run leave them out."""
    if not summary["excluded_images"]:
        return []
    if not packed:
        return [f"To leave them out of a run, pack them (`odst pool build {pool} --out POOL`) and `odst dedup POOL`."]
    if out.resolve() == Path(pool).resolve():
        return ["`odst run` leaves them out of this pool."]
    return [f'To leave them out of a run, write into its config: data.excluded = ["{out / "excluded.parquet"}"]']
