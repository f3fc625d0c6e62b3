import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from shlex import quote

import numpy as np
import pytest
import torch
from torch import nn

from commands import fails, odst
from imports import Report
from interruption import Interrupted, StopAfter
from odst.data.embedding import embed_pool
from odst.data.encoding import Encoding
from odst.data.features import has_features, list_features, open_features, verify_features
from odst.data.formats.arrays import ArraySource
from odst.data.joining import join_pools
from odst.data.packing import build_pool
from odst.data.pool import open_pool
from odst.data.reading import read_set
from odst.data.vectors import Embedder
from odst.data.workers import Decoder, decode_parts
from odst.engine.interface import Share, ShareDone, running_on
from odst.engine.local import Local
from odst.errors import UserError
from odst.progress import listening
from pictures import encoded, folder_of, picture
from test_packing import fingerprint, many

ENCODERS = """
from torch import nn

class Bright(nn.Module):
    "Random projections of a small picture; a vector of a bright one is infinite if `limit` is low."
    def __init__(self, limit=2.0):
        super().__init__()
        self.limit, self.pool, self.project = limit, nn.AdaptiveAvgPool2d(4), nn.Linear(48, 6)
    def forward(self, x):
        out = self.project(self.pool(x).flatten(1))
        return out.masked_fill((x.mean((1, 2, 3)) > self.limit)[:, None], float("inf"))

def make():
    return Bright()

def faulty():
    return Bright(0.52)
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small encoder of one's own, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "tiny_encoders", raising=False)
    (tmp_path / "tiny_encoders.py").write_text(ENCODERS)
    torch.manual_seed(0)
    layer = nn.Linear(48, 6)
    torch.save({"project.weight": layer.weight.data, "project.bias": layer.bias.data}, tmp_path / "tiny.pt")
    return "torch:tiny.pt#tiny_encoders:make@24"


def test_a_picture_is_embedded_beside_its_thumbnail_and_its_vector_is_that_of_the_backbone(spec: str) -> None:
    folder_of(Path("in"), 20, ("cat", "dog"))
    plain, read = read_set("in", 24), read_set("in", 24, encoder=spec)
    backbone = Embedder(spec)
    assert (read.x == plain.x).all()  # as large as the backbone's own: the same pixels
    assert read.hashes == plain.hashes
    assert plain.vectors is None
    assert read.vectors is not None
    assert (read.vectors == backbone(plain.x, plain.uris)).all()
    assert read.vectors.dtype == np.float16
    small = read_set("in", 16, encoder=spec)
    assert small.x.shape == (20, 16, 16, 3)
    assert (small.vectors == read.vectors).all()


def test_a_picture_too_small_for_the_backbone_but_not_for_the_pool_is_embedded(spec: str) -> None:
    np.save("x.npy", np.stack([picture(i, 5, 5) for i in range(3)]))
    assert len(read_set("x.npy", 16, encoder=spec).x) == 3  # 24 is more than four times 5


def test_processes_give_the_vectors_that_one_gives(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = many(Path("x.tar"), 120)
    one = read_set(source, 16, encoder=spec)
    monkeypatch.setattr("odst.data.workers.WORTH_EMBEDDING", 1)
    two = read_set(source, 16, encoder=spec)
    assert (one.vectors == two.vectors).all()
    with pytest.raises(UserError, match="is NaN or beyond float16"):  # told by a process
        read_set(source, 16, encoder=spec.replace("make", "faulty"))


def test_a_column_stands_beside_the_shards_row_by_row(spec: str) -> None:
    source = many(Path("x.tar"), 100)
    build_pool(source, Path("pool"), size=16, shard_rows=32, encoder=spec)
    backbone, pool = Embedder(spec), open_pool("pool")
    column = open_features(Path("pool"), backbone.identity)
    read = read_set(source, 16, encoder=spec)
    vector = dict(zip(read.uris, read.vectors, strict=True))
    assert column.x.shape == (len(pool), 6)
    assert (column.x[:] == np.stack([vector[uri] for uri in pool.source(np.arange(len(pool)))])).all()
    assert len(list(Path("pool/features").glob("*/0*.npy"))) == len(list(Path("pool/shards").glob("*.npy"))) == 3
    assert column.manifests[0]["encoder"] == backbone.identity.to_json()
    assert column.manifests[0]["from"] == "originals"
    verify_features(Path("pool"))


KILLED = """
import sys, time
from pathlib import Path
from odst.data import workers
from odst.data.embedding import embed_pool
from odst.data.packing import build_pool
from odst.data.shards import RowFile

write = RowFile.write
def slowly(self, rows):
    write(self, rows)
    time.sleep(0.05)
RowFile.write = slowly

if __name__ == "__main__":
    source, out, spec = sys.argv[1:]
    if source == "embed":
        embed_pool(Path(out), spec, workers=1)
    else:
        build_pool(source, Path(out), size=16, workers=1, shard_rows=32, encoder=spec)
"""


def kill_when(file: str, out: Path, *arguments: object) -> None:
    """SIGKILL as soon as a file of this name is there."""
    Path("kill.py").write_text(KILLED)
    process = subprocess.Popen([sys.executable, "kill.py", *map(str, arguments)])
    deadline = time.monotonic() + 60
    while not list(out.glob(file)) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(out.glob("features/*/manifest.json"))


def test_a_build_killed_while_embedding_ends_with_the_same_bytes(spec: str) -> None:
    source = many(Path("x.tar"), 300)
    build_pool(source, Path("undisturbed"), size=16, workers=1, shard_rows=32, encoder=spec)
    for shard in (1, 4):
        kill_when(f"building/{shard:05d}.json", Path("killed"), source, "killed", spec)
    build_pool(source, Path("killed"), size=16, workers=2, shard_rows=32, encoder=spec)
    assert fingerprint(Path("killed")) == fingerprint(Path("undisturbed"))


def test_a_column_added_later_and_killed_twice_has_the_bytes_of_one_made_with_the_pool(spec: str) -> None:
    source = many(Path("x.tar"), 300)
    build_pool(source, Path("together"), size=16, workers=1, shard_rows=32, encoder=spec)
    build_pool(source, Path("later"), size=16, workers=1, shard_rows=32)
    build_pool(source, Path("bare"), size=16, workers=1, shard_rows=32)
    assert not has_features(Path("later"), Embedder(spec).identity)
    for shard in (1, 4):
        kill_when(f"features/*/building/{shard:05d}.json", Path("later"), "embed", "later", spec)
    embed_pool(Path("later"), spec, workers=2)
    added = {name: hash for name, hash in fingerprint(Path("later")).items() if name.startswith("features")}
    made = {name: hash for name, hash in fingerprint(Path("together")).items() if name.startswith("features")}
    vectors = {name for name in made if name.endswith(".npy")}
    assert added.keys() == made.keys()
    # the thumbnails differ, and with them what is a duplicate may: here it does not
    assert {name: added[name] for name in vectors} == {name: made[name] for name in vectors}
    assert {k: v for k, v in fingerprint(Path("later")).items() if k not in added} == fingerprint(Path("bare"))


def test_a_stage_broken_off_goes_on_where_its_last_whole_file_ends(spec: str) -> None:
    folder_of(Path("in"), 100)
    build_pool("in", Path("pool"), size=16, shard_rows=16)
    with pytest.raises(Interrupted), listening(StopAfter(50)):
        embed_pool(Path("pool"), spec)
    whole = sorted(Path("pool").glob("features/*/*.npy"))
    times = [file.stat().st_mtime_ns for file in whole]
    assert len(whole) >= 2
    embed_pool(Path("pool"), spec)
    assert [file.stat().st_mtime_ns for file in whole] == times
    assert (open_features(Path("pool"), Embedder(spec).identity).x[:] == read_set("in", 16, encoder=spec).vectors).all()


def test_with_a_share_of_one_an_embedding_broken_off_inside_a_shard_keeps_its_parts(spec: str) -> None:
    """As docs/embeddings.md advises for slow encoders. Each source is a part here, and all are one shard."""
    for name in "abc":
        np.save(f"{name}.npy", np.stack([picture(ord(name) * 100 + i, 24, 24) for i in range(16)]))
    sources = ["a.npy", "b.npy", "c.npy"]
    build_pool(sources, Path("plain"), size=16, encoder=spec)
    with pytest.raises(Interrupted), running_on(Local(1), Share(0, 1)), listening(StopAfter(30)):
        build_pool(sources, Path("pool"), size=16, encoder=spec)
    assert len(list(Path("pool/building/parts").glob("0000?.json"))) < 3
    first = Path("pool/building/parts/00000.vectors.npy").stat().st_mtime_ns
    with pytest.raises(ShareDone), running_on(Local(1), Share(0, 1)):
        build_pool(sources, Path("pool"), size=16, encoder=spec)
    assert Path("pool/building/parts/00000.vectors.npy").stat().st_mtime_ns == first
    assert len(list(Path("pool/building/parts").glob("*.vectors.npy"))) == 3
    build_pool(sources, Path("pool"), size=16, encoder=spec)
    assert fingerprint(Path("pool")) == fingerprint(Path("plain"))


def test_an_encoder_sees_the_originals_of_a_pool_that_was_packed_with_another(spec: str) -> None:
    folder_of(Path("in"), 10)
    build_pool("in", Path("pool"), size=12, encoder=spec)
    other = spec.replace("@24", "@20")
    embed_pool(Path("pool"), other)
    assert (
        open_features(Path("pool"), Embedder(other).identity).x[:] == read_set("in", 12, encoder=other).vectors
    ).all()
    assert len(list_features(Path("pool"))) == 2


def test_pictures_that_people_see_larger_than_the_backbone_does_are_made_from_the_originals(spec: str) -> None:
    """And a vector is the same whatever size the pictures beside it have."""
    folder_of(Path("in"), 10)
    build_pool("in", Path("large"), size=40, encoder=spec)
    build_pool("in", Path("bare"), size=40)
    build_pool("in", Path("small"), size=12, encoder=spec)
    assert (open_pool("large").x[:] == open_pool("bare").x[:]).all()
    identity = Embedder(spec).identity
    assert (open_features(Path("large"), identity).x[:] == open_features(Path("small"), identity).x[:]).all()
    other = spec.replace("@24", "@20")
    embed_pool(Path("large"), other)  # the rows are found again
    expected = read_set("in", 12, encoder=other).vectors
    assert (open_features(Path("large"), Embedder(other).identity).x[:] == expected).all()


def test_a_pool_begun_with_another_encoder_is_refused_with_both_names_and_a_command_that_works(spec: str) -> None:
    folder_of(Path("in"), 10)
    Path("a b").mkdir()
    shutil.copy("tiny.pt", "a b/tiny.pt")
    other = spec.replace("torch:", "torch:a b/").replace("@24", "@20")
    first, second = Embedder(spec).identity, Embedder(other).identity
    assert odst("pool", "build", "in", "--out", "pool", "--size", 12, "--embed", spec).code == 0
    said = fails("pool", "build", "in", "--out", "pool", "--size", 12, "--embed", other)
    assert f"begun with vectors of {first}, and is asked for with vectors of {second}" in said
    _, *typed = shlex.split(said.split("`")[1])
    assert odst(*typed).code == 0
    assert has_features(Path("pool"), second)
    said = fails("pool", "build", "in", "--out", "pool", "--size", 12)
    assert f"begun with vectors of {first}, and is asked for with no vectors" in said and "pool embed" not in said
    assert odst("pool", "build", "in", "--out", "bare", "--size", 12).code == 0
    said = fails("pool", "build", "in", "--out", "bare", "--size", 12, "--embed", other)
    assert "begun with no vectors" in said
    _, *typed = shlex.split(said.split("`")[1])
    assert odst(*typed).code == 0
    order = json.loads(Path("pool/manifest.json").read_text())["order"]
    Path("begun/building").mkdir(parents=True)
    Path("begun/building/order.json").write_text(json.dumps(order))  # one that is not finished
    said = fails("pool", "build", "in", "--out", "begun", "--size", 12, "--embed", other)
    assert str(first) in said and str(second) in said and "pool embed" not in said


def test_a_missing_column_is_asked_for_by_what_opens_its_encoder(spec: str) -> None:
    folder_of(Path("in"), 10)
    Path("a b").mkdir()
    shutil.copy("tiny.pt", "a b/tiny.pt")
    own = spec.replace("torch:", "torch:a b/")
    build_pool("in", Path("pool"), size=12)
    with pytest.raises(UserError) as error:
        Encoding(Embedder(own)).read("pool", 12, "crop")
    _, *typed = shlex.split(str(error.value).split("`")[1])
    assert odst(*typed).code == 0
    assert len(Encoding(Embedder(own)).read("pool", 12, "crop").x) == 10


def test_originals_that_are_not_what_they_were_are_named_and_the_pixels_offered(spec: str) -> None:
    folder_of(Path("in"), 10)
    build_pool("in", Path("pool"), size=16)
    command = ("pool", "embed", "pool", "--embed", spec)
    Path("in/00003.png").write_bytes(encoded(99))
    assert "in/00003.png: it is not what was packed" in (said := fails(*command))
    assert f"`odst pool embed pool --embed {quote(spec)} --from-pixels`" in said
    Path("in/00003.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    assert "(broken)" in fails(*command)
    Path("in/00003.png").unlink()
    assert "9 items, but 10 when pool was packed" in fails(*command)
    shutil.rmtree("in")
    assert "in: there is no such file" in (said := fails(*command))
    assert "--from-pixels" in said
    done = odst(*command, "--from-pixels")
    assert done.code == 0, done.err
    assert "from the stored 16×16 pixels" in done.out
    column = open_features(Path("pool"), Embedder(spec).identity)
    assert (column.manifests[0]["from"], column.manifests[0]["side"]) == ("pixels", 16)
    rows = np.stack([np.asarray(row) for row in open_pool("pool").x[:]])
    np.save("rows.npy", rows)
    assert (column.x[:] == read_set("rows.npy", 16, encoder=spec).vectors).all()
    assert "these vectors were made from the pixels" in fails(*command)


def test_vectors_of_another_revision_or_size_are_refused_with_both_names(spec: str) -> None:
    folder_of(Path("in"), 5)
    build_pool("in", Path("pool"), size=16, encoder=spec)
    first = Embedder(spec).identity
    torch.save({k: v + 1 for k, v in torch.load("tiny.pt").items()}, "tiny.pt")
    second = Embedder(spec).identity
    for other in (second, Embedder(spec.replace("@24", "@20")).identity):
        with pytest.raises(UserError, match="never mix") as error:
            open_features(Path("pool"), other)
        assert str(first) in str(error.value)
        assert str(other) in str(error.value)
    with pytest.raises(UserError, match="and is asked for with"):
        build_pool("in", Path("pool"), size=16, encoder=spec)
    with pytest.raises(UserError, match="and is asked for with"):
        build_pool("in", Path("pool"), size=16)


def test_a_missing_column_names_the_command_that_makes_it(spec: str) -> None:
    folder_of(Path("in"), 5)
    build_pool("in", Path("pool"), size=16)
    with pytest.raises(UserError, match=r"`odst pool embed pool --embed 'torch:tiny.pt#tiny_encoders:make@24'`"):
        open_features(Path("pool"), Embedder(spec).identity)
    assert list_features(Path("pool")) == []


@pytest.mark.parametrize("length", [0, 60, 150])  # nothing, a piece of the header, a piece of the rows
def test_a_vector_file_cut_short_is_one_line(spec: str, length: int) -> None:
    folder_of(Path("in"), 12)
    build_pool("in", Path("pool"), size=16, encoder=spec)
    file = next(Path("pool").glob("features/*/00000.npy"))
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(UserError, match="has changed since it was written") as error:
        open_features(Path("pool"), Embedder(spec).identity)
    assert "\n" not in str(error.value)
    assert "00000.npy: it differs" in fails("pool", "verify", "pool")


def test_a_vector_file_of_another_length_or_another_pool_is_one_line(spec: str) -> None:
    folder_of(Path("in"), 12)
    folder_of(Path("more"), 12, start=50)
    build_pool("in", Path("pool"), size=16, encoder=spec)
    build_pool("more", Path("other"), size=16, encoder=spec)
    encoder = Embedder(spec).identity
    shutil.copytree("pool/features", "kept")
    np.save(next(Path("pool").glob("features/*/00000.npy")), np.zeros((11, 6), np.float16))
    with pytest.raises(UserError, match="has changed since it was written"):
        open_features(Path("pool"), encoder)
    shutil.rmtree("other/features")
    shutil.copytree("kept", "other/features")
    with pytest.raises(UserError, match="made for another pool"):
        open_features(Path("other"), encoder)


def test_a_vector_that_is_not_finite_is_refused_where_it_is_made_and_leaves_no_column(spec: str) -> None:
    folder_of(Path("in"), 40)
    said = fails("pool", "build", "in", "--out", "pool", "--size", "16", "--embed", spec.replace("make", "faulty"))
    assert "NaN or beyond float16" in said
    assert ".png" in said
    assert not Path("pool").exists()  # another attempt may be made with another backbone
    build_pool("in", Path("pool"), size=16)
    assert "NaN or beyond float16" in fails("pool", "embed", "pool", "--embed", spec.replace("make", "faulty"))
    assert not list(Path("pool").glob("features/*"))


def test_a_joined_pool_has_the_columns_that_all_of_its_members_have(spec: str) -> None:
    folder_of(Path("in"), 7)
    folder_of(Path("more"), 9, start=50)
    build_pool("in", Path("a"), size=16, encoder=spec)
    build_pool("more", Path("b"), size=16)
    join_pools([Path("a"), Path("b")], Path("both"))
    encoder = Embedder(spec).identity
    assert not has_features(Path("both"), encoder)
    assert list_features(Path("both")) == []
    with pytest.raises(UserError, match="odst pool embed"):
        open_features(Path("both"), encoder)
    embed_pool(Path("both"), spec)
    column = open_features(Path("both"), encoder)
    assert (column.x[:] == np.concatenate([read_set(s, 16, encoder=spec).vectors for s in ("in", "more")])).all()
    assert len(column.manifests) == 2
    assert "vectors: torch:tiny.pt" in odst("pool", "info", "both").out
    assert odst("pool", "verify", "both").code == 0


def test_a_set_of_vectors_is_not_embedded(spec: str) -> None:
    np.save("x.npy", np.zeros((4, 8), np.float32))
    assert "holds vectors already" in fails("pool", "build", "x.npy", "--out", "pool", "--embed", spec)
    build_pool("x.npy", Path("pool"), keep_duplicates=True)
    assert "holds vectors, not pictures" in fails("pool", "embed", "pool", "--embed", spec)


def test_a_damaged_manifest_of_a_column_is_one_line(spec: str) -> None:
    folder_of(Path("in"), 5)
    build_pool("in", Path("pool"), size=16, encoder=spec)
    file = next(Path("pool").glob("features/*/manifest.json"))
    file.write_text(json.dumps({"format": 1}))
    assert "embed again" in fails("pool", "info", "pool")


def test_a_packaged_backbone_embeds_a_pool_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra odst[backbone]")
    try:
        encoder = Embedder("mobilenetv2@32").identity
    except UserError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path / "in", 20)
    done = odst("pool", "build", "in", "--out", "pool", "--size", "16", "--embed", "mobilenetv2@32")
    assert "vectors: mobilenetv2 at 32 px" in done.out, done.err
    assert open_features(Path("pool"), encoder).x.shape == (20, 1280)


def test_processes_embed_by_the_graph_they_are_given_and_without_torch() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra odst[backbone]")
    try:
        embedder = Embedder("mobilenetv2@32")
    except UserError as error:
        pytest.skip(str(error))
    x = np.stack([picture(i, 32, 32) for i in range(20)])
    source = ArraySource(Path("x"), x)
    parts = [*source.parts(0, 16), Report(), Report()]
    batches = list(decode_parts(parts, Decoder(16, "crop", embedder=embedder), 2))
    assert [batch.rejected[0].reason for batch in batches[-2:]] == ["no torch"] * 2
    got = np.concatenate([batch.vectors for batch in batches])
    assert (got == embedder(x, [""] * 20)).all()
