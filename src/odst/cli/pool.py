"""`odst pool`: pack any images into a pool, embed it, look at it, check it, join pools."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

from odst.cli import Address, Fit, FollowLinks, Gpus, Shard, Where, Workers, app
from odst.cli.results import AsJson, show

pool = Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Pack images of any kind into one pool.\n\nExample: odst pool build photos/ more.tar --out pool --size 32",
)
app.add_typer(pool, name="pool")

Backbone = Option(metavar="BACKBONE", help="efficientnet-lite1, timm:NAME, onnx:FILE, …: a vector for each picture.")
Packed = Annotated[str, Argument(metavar="POOL", help="A packed pool.")]


@pool.command("build")
def build(
    sources: Annotated[
        list[str],
        Argument(
            metavar="SRC",
            help="Folders, .csv, .tsv or .parquet lists, .tar shards, Hugging Face .parquet, .npy, .npz, vectors "
            "(FILE.parquet?features=COLUMN), CIFAR, SVHN or Tiny Images files, packed pools; freely mixed.",
        ),
    ],
    out: Annotated[
        str, Option(metavar="POOL", help="The folder of the pool: new, or begun earlier; or s3://bucket/pool.")
    ],
    size: Annotated[int, Option(min=4, max=1024, help="Height and width of the packed pictures.")] = 32,
    fit: Annotated[Fit, Option(help="How a picture becomes square: its middle, grey bars, or squeezed.")] = "crop",
    keep_duplicates: Annotated[bool, Option("--keep-duplicates", help="Keep exact copies of earlier images.")] = False,
    embed: Annotated[str | None, Backbone] = None,
    follow_links: FollowLinks = False,
    workers: Workers = None,
    engine: Where = None,
    address: Address = None,
    shard: Shard = None,
    as_json: AsJson = False,
) -> None:
    """Decode, resize and pack images.

    Killed and started again, it goes on at the last whole shard. What cannot be read is listed in POOL/rejected.parquet
    with the reason; where every image came from is in POOL/index.parquet.

    Example: odst pool build photos/ web-*.tar --out pool --size 32
    """
    from odst.cli.screen import bars
    from odst.data.features import list_features
    from odst.data.packing import build_pool
    from odst.data.remote import changing
    from odst.data.sources import following
    from odst.engine.choice import chosen

    sources = [following(one) for one in sources] if follow_links else sources
    with bars(), chosen(engine, address, workers, shard=shard), changing(out) as folder:
        manifest = build_pool(
            sources, folder, size=size, fit=fit, workers=workers, keep_duplicates=keep_duplicates, encoder=embed
        )
        columns = list_features(folder)
    found = {"pool": out, "images": manifest["count"], "rejected": manifest.get("rejected", {}), "vectors": columns}
    show(as_json, found, [f"{out}: {manifest['count']:,} images", *_rejected(manifest), *map(_column, columns)])


@pool.command("embed")
def embed(
    path: Packed,
    embed: Annotated[str, Backbone],
    from_pixels: Annotated[
        bool, Option("--from-pixels", help="Embed the stored images: quicker, and worth less where they are small.")
    ] = False,
    workers: Workers = None,
    engine: Where = None,
    address: Address = None,
    gpus: Gpus = 0,
    shard: Shard = None,
    as_json: AsJson = False,
) -> None:
    """Add a column of vectors to a packed pool.

    The originals are read again from where the pool was packed; call it from the same folder if their paths were relative.
    Killed and started again, it goes on at the last whole shard.

    Example: odst pool embed pool --embed efficientnet-lite1
    """
    from odst.cli.screen import bars
    from odst.data.embedding import embed_pool
    from odst.data.features import list_features
    from odst.data.remote import changing
    from odst.engine.choice import chosen

    with bars(), chosen(engine, address, workers, gpus, shard), changing(path) as folder:
        embed_pool(folder, embed, from_pixels=from_pixels, workers=workers)
        columns = list_features(folder)
    show(as_json, {"pool": path, "vectors": columns}, map(_column, columns))


@pool.command("join")
def join(
    pools: Annotated[list[Path], Argument(metavar="POOL", help="Packed pools with rows of one size.")],
    out: Annotated[Path, Option(metavar="POOL", help="A new folder for the joined pool.")],
    as_json: AsJson = False,
) -> None:
    """Join packed pools without copying them.

    The new pool refers to the others: keep them where they are. An image that an earlier pool holds already is set aside.

    Example: odst pool join pool-a pool-b --out both
    """
    from odst.data.joining import join_pools
    from odst.data.pool import open_pool

    for one in pools:
        open_pool(one)  # what is wrong with it is said before anything is written
    join_pools(pools, out)
    joined = open_pool(out)
    images = len(joined) - len(joined.excluded)
    show(as_json, {"pool": out, "images": images, "of": pools}, [f"{out}: {images:,} images of {len(pools)} pools"])


@pool.command("info")
def info(
    path: Packed,
    sheet: Annotated[Path | None, Option(metavar="PNG", help="Default: POOL/contact_sheet.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a pool holds, with a sheet of 100 random images.

    Example: odst pool info pool
    """
    import numpy as np

    from odst.data.features import list_features
    from odst.data.images import is_image
    from odst.data.pool import open_pool, original_sizes, read_manifest
    from odst.data.remote import here
    from odst.files import whole
    from odst.seeds import stream
    from odst.vision.sheets import contact_sheet

    folder = here(path)
    opened, manifest = open_pool(folder), read_manifest(folder)
    row, kind = "×".join(map(str, manifest["row"])), "images" if is_image(opened.x) else "feature vectors"
    found: dict[str, Any] = {
        "pool": path,
        "rows": len(opened),
        "row": manifest["row"],
        "dtype": manifest["dtype"],
        "excluded": len(opened.excluded),
        "original_sizes": dict(original_sizes(folder)),
        "rejected": manifest.get("rejected", {}),
        "vectors": list_features(folder),
        "identity": opened.identity,
    }
    lines = [f"{path}: {len(opened):,} {kind}, {row} {manifest['dtype']}", f"excluded: {len(opened.excluded):,}"]
    lines += [f"originally {size}: {count:,}" for size, count in found["original_sizes"].items()]
    lines += [*_rejected(manifest), *map(_column, found["vectors"]), f"identity: {opened.identity}"]
    if is_image(opened.x):
        ids = np.sort(stream(0, "contact sheet").choice(len(opened), min(100, len(opened)), replace=False))
        page = contact_sheet(
            opened.x[ids], [f"id {j}" for j in ids], title=f"{folder.name}: {len(ids)} of {len(opened):,}"
        )
        sheet = sheet or folder / "contact_sheet.png"
        with whole(sheet) as temporary:
            page.save(temporary, "PNG")
        found["contact_sheet"] = sheet
        lines.append(f"contact sheet: {sheet}")
    show(as_json, found, lines)


@pool.command("verify")
def verify(
    path: Packed,
    workers: Workers = None,
    engine: Where = None,
    address: Address = None,
    shard: Shard = None,
    as_json: AsJson = False,
) -> None:
    """Read every file of a pool and compare it with its hash.

    Example: odst pool verify pool
    """
    from odst.cli.screen import bars
    from odst.data.features import verify_features
    from odst.data.pool import verify_pool
    from odst.data.remote import here
    from odst.engine.choice import chosen

    with bars(), chosen(engine, address, workers, shard=shard):
        folder = here(path)
        verify_pool(folder)
        verify_features(folder)
    line = f"{path}: every file {f'of share {shard} ' if shard else ''}is what it was."
    show(as_json, {"pool": path, "share": shard, "unchanged": True}, [line])


def _rejected(manifest: dict[str, Any]) -> list[str]:
    rejected = manifest.get("rejected")
    if not isinstance(rejected, dict) or not rejected:
        return []
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(rejected.items(), key=lambda kv: -kv[1]))
    return [f"rejected: {sum(rejected.values()):,} ({reasons})"]


def _column(column: dict[str, Any]) -> str:
    encoder = column["encoder"]
    made = "originals" if column["from"] == "originals" else f"stored {column['side']}×{column['side']} pixels"
    revision = f", {encoder['revision']}" if encoder["revision"] else ""
    said = f"{encoder['name']} at {encoder['size']} px{revision}, weights {encoder['weights'][:8]}"
    return f"vectors: {said}, {encoder['dimension']:,} numbers, from the {made}"
