"""`odst dedup`: the leak guard."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from odst.cli import app
from odst.cli.run import Quiet, Verbose

if TYPE_CHECKING:
    from odst.data.decoding import Fit
    from odst.data.images import Pool
    from odst.data.reading import ReadSet
    from odst.vision.perceptual import LpipsWeights


@app.command()
def dedup(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="A packed pool, or any source small enough for memory.")],
    against: Annotated[
        list[str],
        typer.Option(
            metavar="REF", help="A set nothing in the pool may show: any source, or a name as cifar10:test. Repeatable."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the findings go. Default: the packed pool itself, else NAME-dedup."),
    ] = None,
    exact_against: Annotated[
        list[str] | None,
        typer.Option(metavar="SRC", help="Exact copies of these images leave, say of the training set."),
    ] = None,
    listed: Annotated[
        list[Path] | None,
        typer.Option("--list", metavar="FILE", help="A published exclusion list, or a table with a column pool_id."),
    ] = None,
    list_base: Annotated[
        int | None,
        typer.Option(min=0, max=1, help="Whether the plain lists count from 0 or 1. Known ones need no telling."),
    ] = None,
    radius: Annotated[float, typer.Option(help="L2 below which a pair is a candidate, pixels in [0,1].")] = 2000 / 255,
    l2: Annotated[float, typer.Option(help="L2 below which a candidate leaves.")] = 3.0,
    max_lpips: Annotated[float, typer.Option(help="LPIPS below which a candidate looks alike.")] = 0.025,
    max_dissim: Annotated[float, typer.Option(help="1 - SSIM below which a candidate looks alike.")] = 0.4,
    lpips: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|none",
            help="LPIPS weights: .npz, or torchvision's AlexNet .pth. Default: what `odst data get lpips-alexnet` left.",
        ),
    ] = None,
    lpips_heads: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="LPIPS heads beside an AlexNet .pth. Default: torchmetrics' own."),
    ] = None,
    lpips_input: Annotated[
        Literal["unit", "signed"],
        typer.Option(
            help="Scale of LPIPS' input: unit is [0,1], for which the paper's 0.025 seems to be set; signed is [-1,1], as "
            "LPIPS defines it, and needs a threshold of its own."
        ),
    ] = "unit",
    size: Annotated[
        int, typer.Option(min=4, max=1024, help="Height and width for sources that are no packed pool.")
    ] = 32,
    fit: Annotated[
        Literal["crop", "pad", "stretch"],
        typer.Option(help="How pictures become square. A packed pool has its own, and the references follow it."),
    ] = "crop",
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what an earlier pass left in DIR.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List pool images that show evaluation images. Example: odst dedup pool --against cifar10_test.parquet

    Writes excluded.parquet, which `odst run` honours, the histogram of nearest distances, sheets of pairs (pairs-*.png) and
    dedup.json. A pass that was cut goes on where it stopped. The same command tells whether a test set leaks into a
    training set: odst dedup train/ --against test/
    """
    from odst.cli.screen import bars
    from odst.data.pool import is_packed
    from odst.data.sources import spec_name
    from odst.duplicates import Guard, Rule, audit

    rule = Rule(radius=radius, l2=l2, lpips=max_lpips, dissim=max_dissim, lpips_input=lpips_input)
    packed = is_packed(Path(pool))
    out = out or (Path(pool) if packed else Path(f"{spec_name(pool)}-dedup"))
    with bars(quiet, verbose) as console:
        fit = _fit(Path(pool), fit) if packed else fit
        U = _pool(pool, packed, size, fit)
        size = U.x.shape[1]
        if size != 32 and (radius, l2) == (2000 / 255, 3.0):
            _say_scale(size)
        weights = _weights(lpips, lpips_heads, size)
        names = _names([*against, *(exact_against or []), *map(str, listed or [])])
        references = {name: _read(spec, size, fit) for name, spec in zip(names, against, strict=False)}
        copies = {
            name: _read(spec, size, fit) for name, spec in zip(names[len(against) :], exact_against or [], strict=False)
        }
        guard = Guard(
            {name: found.x for name, found in references.items()},
            rule,
            weights,
            exact={name: {h: i for i, h in reversed(list(enumerate(found.hashes)))} for name, found in copies.items()},
            listed={
                name: _ids(file, U, list_base, Path(pool) if packed else None)
                for name, file in zip(names[len(references) + len(copies) :], listed or [], strict=True)
            },
        )
        both = references | copies
        notes: dict[str, Any] = {
            "path": pool,
            "against": dict(zip(names, [*against, *(exact_against or []), *map(str, listed or [])], strict=True)),
            "images": {name: len(found.x) for name, found in both.items()},
            "unreadable": {name: len(found.rejected) for name, found in both.items()},
            "size": size,
            "fit": fit,
        }
        sources = {name: _Texts(found.uris) for name, found in both.items()}
        summary = audit(U, guard, out, sources=sources, notes=notes, fresh=fresh)
        for line in [*_lines(summary, len(U), out), *_use(summary, pool, packed, out)]:
            console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Texts:
    """A list as the texts of rows."""

    def __init__(self, texts: list[str]):
        self.texts = texts

    def __getitem__(self, rows: Any) -> list[str]:
        return [self.texts[int(row)] for row in rows]


def _pool(spec: str, packed: bool, size: int, fit: "Fit") -> "Pool":
    from odst.data.images import Pool
    from odst.data.pool import open_pool
    from odst.duplicates.search import check_pictures

    if packed:
        U = open_pool(spec, every=True)
    else:
        found = _read(spec, size, fit)
        U = Pool(found.x, sources=_Texts(found.uris), hashes=_Texts(found.hashes))
    check_pictures(spec, U.x)
    return U


def _fit(pool: Path, otherwise: "Fit") -> "Fit":
    """How the images of a packed pool became square; pools joined after different rules leave it to `otherwise`."""
    import logging

    from odst.data.pool import packed_fits, read_manifest

    found = packed_fits(pool, read_manifest(pool))
    if len(found) > 1:
        logging.getLogger("odst").warning(
            f"{pool}: the pools it joins were packed with --fit {' and '.join(sorted(found))}. The references follow "
            f"{otherwise}, so copies in the others may be missed: run `odst dedup` on each of the pools instead."
        )
    return found.pop() if len(found) == 1 else otherwise


def _read(spec: str, size: int, fit: "Fit") -> "ReadSet":
    """A set by path or by name, at the pool's size: resized as `odst pool build` does it."""
    import logging

    from odst.data.reading import read_set

    found = read_set(spec, size, fit)
    if found.rejected:
        first = found.rejected[0]
        logging.getLogger("odst").warning(
            f"{spec}: {len(found.rejected)} of its items cannot be read and are not looked at; the first: {first.uri}: {first.reason}"
        )
    return found


def _say_scale(size: int) -> None:
    import logging

    wide = size / 32  # L2 sums over pixels, so the same change is farther in a larger image
    logging.getLogger("odst").warning(
        f"--radius and --l2 are the paper's, for 32×32 pixels. These are {size}×{size}, where the same change is {wide:.3g} "
        f"times as far: --radius {2000 / 255 * wide:.3g} --l2 {3 * wide:.3g} would judge alike."
    )


def _weights(lpips: str | None, heads: Path | None, size: int) -> "LpipsWeights | None":
    """Without any, say so: SSIM alone decides."""
    import logging

    from odst.data.named.download import find
    from odst.vision.perceptual import SMALLEST, read_lpips_weights

    warn = logging.getLogger("odst").warning
    path = lpips or next(map(str, find("lpips-alexnet") or []), None)
    if path is None or path == "none":
        why = "as asked for" if path else "no weights are here; `odst data get lpips-alexnet` fetches them"
        warn(
            f"WITHOUT LPIPS ({why}): SSIM alone decides what looks alike, and more images leave than by the paper's rule."
        )
        return None
    if lpips is None and size < SMALLEST:
        warn(f"WITHOUT LPIPS (it needs {SMALLEST}×{SMALLEST} pixels, these are {size}×{size}): SSIM alone decides.")
        return None
    return read_lpips_weights(path, heads)


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
        lines.append("  WITHOUT LPIPS: SSIM alone decided what looks alike (recorded in dedup.json).")
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
