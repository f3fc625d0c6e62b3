import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from odst.data.images import content_hash
from odst.data.items import Item
from odst.data.packing import build_pool
from odst.data.pool import open_pool, verify_pool
from odst.data.repeats import Seen
from odst.data.workers import Decoder, decode_parts
from odst.engine.interface import Share, ShareDone, running_on
from odst.engine.local import Local
from odst.errors import UserError
from pictures import bomb, encoded, folder_of, picture


def fingerprint(pool: Path) -> dict[str, str]:
    """Every file of a pool by its bytes."""
    files = sorted(path for path in pool.rglob("*") if path.is_file() and path.name != ".checked.json")
    return {str(path.relative_to(pool)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def many(path: Path, n: int) -> Path:
    """A tar of n small pictures, some repeated and some broken: quicker to write than files."""
    with tarfile.open(path, "w") as tar:
        for i in range(n):
            data = b"\x89PNG\r\n\x1a\n broken" if i % 17 == 5 else encoded(i % 97 if i % 7 == 0 else i)
            info = tarfile.TarInfo(f"{i:05d}.png")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_a_pool_holds_every_picture_once_in_the_order_of_the_source(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.stack([picture(i % 6, 32, 32) for i in range(10)]))
    manifest = build_pool(tmp_path / "x.npy", tmp_path / "pool")
    pool = open_pool(tmp_path / "pool")
    assert manifest["count"] == len(pool) == 6
    assert (pool.x[:] == np.stack([picture(i, 32, 32) for i in range(6)])).all()
    assert manifest["rejected"] == {"duplicate": 4}
    ids = np.arange(6)
    assert [uri.rpartition("=")[2] for uri in pool.source(ids)] == list("012345")
    assert list(pool.content_hash(ids)) == [content_hash(pool.x[j : j + 1][0]) for j in ids]
    assert build_pool(tmp_path / "x.npy", tmp_path / "all", keep_duplicates=True)["count"] == 10


def test_the_index_says_where_each_row_came_from(tmp_path: Path) -> None:
    folder_of(tmp_path / "in", 3, ("cat", "dog"))
    build_pool(tmp_path / "in", tmp_path / "pool")
    index = pq.read_table(tmp_path / "pool" / "index.parquet").to_pydict()
    assert index["id"] == [0, 1, 2]
    assert index["label"] == ["cat", "cat", "dog"]
    assert (index["width"], index["height"]) == ([40] * 3, [32] * 3)
    assert index["source"][2] == (tmp_path / "in" / "dog" / "00001.png").as_uri()


def test_the_number_of_workers_and_of_rows_at_a_time_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = many(tmp_path / "x.tar", 300)
    build_pool(source, tmp_path / "one", workers=1, shard_rows=64)
    monkeypatch.setattr("odst.data.workers.PART_BYTES", 1)  # eight items at a time
    monkeypatch.setattr("odst.data.workers.WORTH_A_PROCESS", 1)
    build_pool(source, tmp_path / "three", workers=3, shard_rows=64)
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "three")


KILLED = """
import sys, time
from pathlib import Path
from odst.data import packing
from odst.data.shards import Shard

write = Shard.write
def slowly(self, batch):
    write(self, batch)
    time.sleep(0.02)
Shard.write = slowly

if __name__ == "__main__":
    packing.build_pool(sys.argv[1], Path(sys.argv[2]), workers=1, shard_rows=64)
"""


def test_a_killed_build_goes_on_at_the_last_whole_shard_and_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odst.data.workers.PART_BYTES", 1)
    source, out = many(tmp_path / "x.tar", 400), tmp_path / "killed"
    build_pool(source, tmp_path / "undisturbed", workers=1, shard_rows=64)
    (tmp_path / "kill.py").write_text(
        KILLED.replace("import packing", "import packing, workers\nworkers.PART_BYTES = 1")
    )
    for shards in (1, 3):  # killed twice, the second time after going on
        process = subprocess.Popen([sys.executable, tmp_path / "kill.py", source, out])
        deadline = time.monotonic() + 60
        while not (out / "building" / f"{shards:05d}.json").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (out / "manifest.json").exists()
    with pytest.raises(UserError, match="not finished"):
        open_pool(out)
    kept = (out / "shards" / "00000.npy").stat().st_mtime_ns
    build_pool(source, out, workers=1, shard_rows=64)
    assert (out / "shards" / "00000.npy").stat().st_mtime_ns == kept
    assert fingerprint(out) == fingerprint(tmp_path / "undisturbed")


def interrupted(source: Path, out: Path) -> None:
    """Stop a build by an exception inside its second shard."""

    class Stop(Exception): ...

    from odst.data import packing

    original, shards = packing.Shard.write, []

    def write(self: packing.Shard, batch: object) -> None:
        original(self, batch)  # type: ignore[arg-type]
        if self.number not in shards:
            shards.append(self.number)
        if len(shards) == 2:
            raise Stop

    packing.Shard.write = write  # type: ignore[method-assign]
    try:
        build_pool(source, out, workers=1, shard_rows=4)
    except Stop:
        pass
    finally:
        packing.Shard.write = original  # type: ignore[method-assign]


UNGUARDED = """
import sys
from pathlib import Path
from odst.data import packing, workers
workers.WORTH_A_PROCESS = 1
packing.build_pool(sys.argv[1], Path(sys.argv[2]), workers=2)
"""


def test_a_script_that_starts_its_work_unguarded_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    source = many(tmp_path / "x.tar", 40)
    command = [sys.executable, tmp_path / "script.py", source, tmp_path / "pool"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "a decoding process ended with exit code 1" in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr.splitlines()[-1]


@dataclass(frozen=True)
class Deadly:
    """A part whose reading ends the process."""

    kind: int | signal.Signals

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Item]:
        os.kill(os.getpid(), self.kind) if isinstance(self.kind, signal.Signals) else os._exit(self.kind)
        yield from ()


def test_a_decoding_process_that_dies_says_how() -> None:
    deaths = {signal.SIGKILL: "by SIGKILL, most likely for want of memory", signal.SIGSEGV: "by SIGSEGV. ", 7: "code 7"}
    for kind, words in deaths.items():
        with pytest.raises(UserError, match=f"a decoding process (was ended|ended with exit) {words}"):
            list(decode_parts([Deadly(kind)], Decoder(8, "crop"), 2))


@pytest.mark.parametrize("n", [8, 10])  # pictures: the last shard of 4 rows holds nothing but the last item, or not
@pytest.mark.parametrize("tail", [b"no picture", encoded(0)])  # the last item is rejected at once, or as a duplicate
def test_a_build_that_was_killed_before_its_manifest_goes_on_whatever_its_last_item_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, tail: bytes
) -> None:
    folder_of(tmp_path / "in", n)
    (tmp_path / "in" / "z.png").write_bytes(tail)
    build_pool(tmp_path / "in", tmp_path / "undisturbed", shard_rows=4)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("odst.data.packing._finish", killed)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                build_pool(tmp_path / "in", tmp_path / "killed", shard_rows=4)
    build_pool(tmp_path / "in", tmp_path / "killed", shard_rows=4)
    assert fingerprint(tmp_path / "killed") == fingerprint(tmp_path / "undisturbed")


def test_sources_that_changed_in_between_are_noticed(tmp_path: Path) -> None:
    folder_of(tmp_path / "in", 12)
    interrupted(tmp_path / "in", tmp_path / "pool")
    (tmp_path / "in" / "00003.png").rename(tmp_path / "in" / "99999.png")
    with pytest.raises(UserError, match="sources have changed"):
        build_pool(tmp_path / "in", tmp_path / "pool", shard_rows=4)
    (tmp_path / "in" / "new.png").write_bytes(encoded(50))
    with pytest.raises(UserError, match="other items"):
        build_pool(tmp_path / "in", tmp_path / "pool", shard_rows=4)


def test_a_finished_pool_is_left_as_it_is_and_never_mixed_with_another(tmp_path: Path) -> None:
    folder_of(tmp_path / "in", 3)
    build_pool(tmp_path / "in", tmp_path / "pool")
    before = fingerprint(tmp_path / "pool")
    build_pool(tmp_path / "in", tmp_path / "pool", workers=2)
    assert fingerprint(tmp_path / "pool") == before
    with pytest.raises(UserError, match="a pool with other size"):
        build_pool(tmp_path / "in", tmp_path / "pool", size=16)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="other files here already"):
        build_pool(tmp_path / "in", tmp_path / "home")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "manifest.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="it is damaged"):
        build_pool(tmp_path / "in", tmp_path / "app")
    with pytest.raises(UserError, match="inside its own source"):
        build_pool(tmp_path / "in", tmp_path / "in" / "pool")


def test_a_share_that_is_refused_leaves_what_the_others_work_on(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8, 3), np.uint8))
    out = tmp_path / "pool"
    with pytest.raises(ShareDone), running_on(Local(1), Share(1, 3)):  # it has no part, so it leaves no note
        build_pool(tmp_path / "x.npy", out, size=8)
    before = fingerprint(out)
    assert "building/order.json" in before
    with pytest.raises(UserError, match="the first call here was one of 3"), running_on(Local(1), Share(0, 4)):
        build_pool(tmp_path / "x.npy", out, size=8)
    assert fingerprint(out) == before


def test_a_source_without_one_image_is_a_fault_of_the_whole(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_text("text")
    with pytest.raises(UserError, match=r"no image in its 1 files\. Most were: not an image"):
        build_pool(tmp_path / "in", tmp_path / "pool")
    folder_of(tmp_path / "in2", 1)
    assert build_pool(tmp_path / "in2", tmp_path / "pool")["count"] == 1


def test_features_are_packed_with_their_own_type(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float16)
    np.save(tmp_path / "f.npy", x)
    build_pool(tmp_path / "f.npy", tmp_path / "pool", shard_rows=8)
    pool = open_pool(tmp_path / "pool")
    assert pool.x.dtype == np.float16
    assert (pool.x[:] == x).all()


def test_a_packed_pool_is_a_source_that_keeps_its_provenance(tmp_path: Path) -> None:
    folder_of(tmp_path / "in", 5, ("cat", "dog"))
    build_pool(tmp_path / "in", tmp_path / "large", size=40)
    build_pool([tmp_path / "large"], tmp_path / "small", size=16)
    large, small = open_pool(tmp_path / "large"), open_pool(tmp_path / "small")
    assert list(small.source(np.arange(5))) == list(large.source(np.arange(5)))
    assert pq.read_table(tmp_path / "small" / "index.parquet")["label"].to_pylist() == ["cat"] * 3 + ["dog"] * 2


def save(path: bytes | Path, image: Image.Image, format: str, **options: object) -> None:
    file = io.BytesIO()
    image.save(file, format, **options)
    with open(path, "wb") as out:
        out.write(file.getvalue())


def damaged_folder(root: Path) -> set[bytes]:
    """More than 20 kinds of odd files; returns the names that should be readable."""
    rgb, base = Image.fromarray(picture(1)), os.fsencode(root)
    whole = encoded(2, "JPEG", quality=95)
    (root / "sub").mkdir(parents=True)
    (root / "truncated.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    (root / "header only.jpg").write_bytes(whole[:20])
    (root / "zero.png").write_bytes(b"")
    (root / "text.jpg").write_text("this is no picture")
    (root / "bomb.png").write_bytes(bomb(40_000, 40_000))
    (root / "tiny.png").write_bytes(b"")
    save(root / "tiny.png", Image.new("RGB", (3, 3)), "PNG")
    (root / "notes.txt").write_text("beside the pictures")
    (root / "flipped bits.png").write_bytes(encoded(3)[:80] + b"\xff\x00\xff" + encoded(3)[83:])
    (root / "loop").symlink_to("loop")
    (root / "sub" / "up").symlink_to(root)
    (root / "broken link.png").symlink_to("nowhere.png")
    os.mkfifo(root / "pipe.jpg")
    (root / "unreadable.png").write_bytes(encoded(4))
    (root / "unreadable.png").chmod(0)
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(root)  # the name of a socket may not be long
    listener.bind("socket.jpg")
    os.chdir(here)
    listener.close()

    readable = {
        b"plain.jpg": ("JPEG", rgb, {}),
        b"cmyk.jpg": ("JPEG", Image.fromarray(picture(5)).convert("CMYK"), {}),
        b"sixteen.png": ("PNG", Image.fromarray(picture(6)[:, :, 0].astype(np.uint16) * 257), {}),
        b"moving.gif": ("GIF", Image.fromarray(picture(7)), {"save_all": True, "append_images": [rgb]}),
        b"palette.png": ("PNG", Image.fromarray(picture(8)).convert("P"), {}),
        b"alpha.webp": ("WEBP", Image.fromarray(picture(9)).convert("RGBA"), {}),
        b"pages.tiff": ("TIFF", Image.fromarray(picture(10)), {"save_all": True, "append_images": [rgb.copy()]}),
        b"one bit.bmp": ("BMP", Image.fromarray(picture(11)).convert("1"), {}),
        b"no ending": ("PNG", Image.fromarray(picture(12)), {}),
        b"wrong ending.jpg": ("PNG", Image.fromarray(picture(13)), {}),
        b"  spaces  .png": ("PNG", Image.fromarray(picture(14)), {}),
        b"\"quotes' and `ticks`.png": ("PNG", Image.fromarray(picture(15)), {}),
        b"new\nline.png": ("PNG", Image.fromarray(picture(16)), {}),
        b"latin1 \xe9\xff.png": ("PNG", Image.fromarray(picture(17)), {}),
        "emoji 🐈‍⬛.png".encode(): ("PNG", Image.fromarray(picture(18)), {}),
        b"-rf *.png": ("PNG", Image.fromarray(picture(19)), {}),
        b"percent %41 # ? &.png": ("PNG", Image.fromarray(picture(20)), {}),
    }
    for name, (format, image, options) in readable.items():
        save(os.path.join(base, name), image, format, **options)  # noqa: PTH118
    with open(os.path.join(base, b"sub/copy.jpg"), "wb") as copy, open(root / "plain.jpg", "rb") as plain:  # noqa: PTH118
        copy.write(plain.read())
    return set(readable)


def names_below(root: Path, uris: list[str]) -> list[bytes]:
    prefix = os.fsencode(root) + b"/"
    paths = [unquote_to_bytes(uri.removeprefix("file://")) for uri in uris]
    assert all(path.startswith(prefix) for path in paths)
    return [path.removeprefix(prefix) for path in paths]


def test_a_folder_of_damaged_and_odd_files_is_packed_and_every_file_accounted_for(tmp_path: Path) -> None:
    root = tmp_path / "in"
    readable = damaged_folder(root)
    build_pool(root, tmp_path / "pool")
    verify_pool(tmp_path / "pool")
    index = names_below(root, pq.read_table(tmp_path / "pool" / "index.parquet")["source"].to_pylist())
    table = pq.read_table(tmp_path / "pool" / "rejected.parquet").to_pydict()
    rejected = dict(zip(names_below(root, table["source"]), table["reason"], strict=True))
    every = {os.path.relpath(os.path.join(folder, name), os.fsencode(root))  # noqa: PTH118
             for folder, _, names in os.walk(os.fsencode(root)) for name in names} | {b"sub/up"}  # fmt: skip
    assert not set(index) & set(rejected)
    assert set(index) | set(rejected) == every
    assert len(index) == len(set(index))
    assert readable <= set(index) <= readable | {b"unreadable.png"}  # root reads everything
    expected = {
        b"truncated.jpg": "truncated", b"zero.png": "empty", b"text.jpg": "not an image", b"bomb.png": "too many pixels",
        b"tiny.png": "too small", b"notes.txt": "not an image", b"loop": "symlink loop", b"sub/up": "symlink loop",
        b"broken link.png": "missing", b"pipe.jpg": "not a file", b"socket.jpg": "not a file", b"sub/copy.jpg": "duplicate",
    }  # fmt: skip
    assert {name: rejected[name] for name in expected} == expected
    assert len(every) >= 30
    if os.geteuid() != 0:
        assert rejected[b"unreadable.png"] == "unreadable"


@pytest.mark.parametrize("expected", [10, 5000])  # with a table that is full soon, and one with room
def test_a_hash_is_new_the_first_time_only_whatever_came_before(
    expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odst.data.repeats.LONGEST", 1000)  # so there are several runs
    rng, seen, known = np.random.default_rng(0), Seen(tmp_path, 0, expected), set()
    some = rng.integers(1 << 64, size=4000, dtype=np.uint64)
    for size in [1, 0, 300, 7, *[256] * 20, 2000]:
        heads = rng.choice(some, size)
        wanted = [head not in known and not known.add(head) for head in heads.tolist()]
        assert seen.fresh(heads).tolist() == wanted
    assert sum(map(len, seen.runs)) == len(known)
    assert len(seen.runs) > 2
