import csv
import io
import json
import os
import tarfile
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from commands import fails
from odst.data.items import Item, Source
from odst.data.reading import read_set
from odst.data.sources import open_source, open_sources
from odst.errors import UserError
from pictures import encoded, folder_of, picture


def items(source: Source, start: int = 0, most: int = 7) -> list[Item]:
    parts = list(source.parts(start, most))
    assert all(0 < len(part) <= most for part in parts)
    return [item for part in parts for item in part]


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_hugging_face(path: Path, n: int, group: int = 5) -> Path:
    """As datasets writes it: names in the schema metadata."""
    features = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pa.table(
        {
            "image": [{"bytes": encoded(i), "path": f"{i}.png"} for i in range(n)],
            "label": [i % 2 for i in range(n)],
            "split": ["even" if i % 3 else "third" for i in range(n)],
        }
    )
    pq.write_table(table.replace_schema_metadata(metadata), path, row_group_size=group)
    return path


def every_kind(tmp: Path) -> dict[str, str]:
    """The same eleven labelled pictures in each container."""
    pictures, labels = [encoded(i) for i in range(11)], [("cat", "dog")[i % 2] for i in range(11)]
    folder_of(tmp / "folder", 11, ("cat", "dog"))
    with open(tmp / "list.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        rows.writerows([f"folder/{labels[i]}/{i:05d}.png", labels[i]] for i in range(11))
    (tmp / "list.tsv").write_text((tmp / "list.csv").read_text().replace(",", "\t"))
    paths = [(tmp / "folder" / labels[i] / f"{i:05d}.png").as_uri() for i in range(11)]
    pq.write_table(pa.table({"file_name": paths, "class": labels}), tmp / "list.parquet")
    members = [m for i in range(11) for m in ((f"{i:03d}.png", pictures[i]), (f"{i:03d}.cls", labels[i].encode()))]
    write_tar(tmp / "shard.tar", members)
    write_hugging_face(tmp / "hf.parquet", 11)
    pixels = np.stack([picture(i) for i in range(11)])
    np.save(tmp / "x.npy", pixels)
    np.save(tmp / "y.npy", np.array(labels))
    np.savez(tmp / "x.npz", images=pixels.transpose(0, 3, 1, 2), labels=np.arange(11) % 2, classes=["cat", "dog"])
    names = ["folder", "list.csv", "list.tsv", "list.parquet", "shard.tar", "hf.parquet", "x.npy?labels=y.npy", "x.npz"]
    return {name: str(tmp / name) for name in names}


def test_every_container_gives_the_same_pictures_and_labels(tmp_path: Path) -> None:
    kinds = every_kind(tmp_path)
    wanted = read_set(kinds["folder"], 32, labelled=True)
    truth = dict(zip(wanted.hashes, wanted.labels or [], strict=True))
    assert len(truth) == 11
    for name, spec in kinds.items():
        found = read_set(spec, 32, labelled=True)
        assert dict(zip(found.hashes, found.labels or [], strict=True)) == truth, name
        assert not found.rejected


def test_a_source_can_be_taken_up_at_any_item_and_in_any_portions(tmp_path: Path) -> None:
    for spec in every_kind(tmp_path).values():
        source = open_source(spec)
        uris = [item.uri for item in items(source)]
        assert source.count() == len(uris) == len(set(uris)) == 11
        for start in (0, 1, 5, 10, 11):
            for most in (1, 4, 100):
                assert [item.uri for item in items(source, start, most)] == uris[start:]


def test_sources_mix_in_the_order_given(tmp_path: Path) -> None:
    kinds = every_kind(tmp_path)
    mixed = read_set([kinds["x.npz"], kinds["shard.tar"], kinds["folder"]], 32, labelled=True)
    assert len(mixed.x) == 33
    assert (mixed.x[:11] == mixed.x[11:22]).all()


def test_the_class_is_the_folder_directly_below_the_root(tmp_path: Path) -> None:
    for path in ("cat/a/1.png", "cat/2.png", "dog/b/c/3.png", "4.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(encoded(0))
    found = {unquote(item.uri).rpartition("/")[2]: item.label for item in items(open_source(tmp_path))}
    assert found == {"1.png": "cat", "2.png": "cat", "3.png": "dog", "4.png": None}


def test_folders_are_read_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    names = ["b.png", "a.png", "Z.png", "ä.png", "10.png", "9.png"]
    for name in names:
        (tmp_path / name).write_bytes(encoded(0))
    uris = [item.uri for item in items(open_source(tmp_path), most=2)]
    assert [unquote(uri).rpartition("/")[2] for uri in uris] == sorted(names, key=os.fsencode)


def test_uris_lead_back_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / 'ein "Name" mit # ? % und\nUmbruch 🐈.png'
    file.write_bytes(encoded(3))
    (item,) = items(open_source(tmp_path))
    assert item.uri.isascii()
    assert " " not in item.uri
    assert Path(unquote(item.uri.removeprefix("file://"))) == file


def test_a_question_mark_filters_rows_and_names_columns(tmp_path: Path) -> None:
    table = write_hugging_face(tmp_path / "hf.parquet", 12)
    third = read_set(f"{table}?split=third", 32, labelled=True)
    assert third.labels == ["cat", "dog", "cat", "dog"]
    assert [uri.rpartition("=")[2] for uri in third.uris] == ["0", "3", "6", "9"]
    folder_of(tmp_path / "in", 4)
    (tmp_path / "l.csv").write_text("bild,art,fold\n" + "".join(f"in/{i:05d}.png,k{i},{i % 2}\n" for i in range(4)))
    chosen = read_set(f"{tmp_path}/l.csv?path=bild&label=art&fold=1", 32, labelled=True)
    assert chosen.labels == ["k1", "k3"]


def test_a_pattern_and_a_folder_of_shards_are_many_sources(tmp_path: Path) -> None:
    for i in range(3):
        write_tar(tmp_path / f"s-{i}.tar", [(f"{i}.png", encoded(i))])
    assert len(open_sources(f"{tmp_path}/s-*.tar")) == 3
    assert len(open_sources(tmp_path)) == 3
    assert len(read_set(tmp_path, 32).x) == 3


def test_webdataset_labels_come_from_cls_or_json(tmp_path: Path) -> None:
    members = [
        ("a/1.png", encoded(1)), ("a/1.cls", b"7\n"), ("a/2.jpg", encoded(2, "JPEG")), ("a/2.json", b'{"label": "fox"}'),
        ("a/3.seg.png", encoded(3)), ("a/4.txt", b"no image"), ("a/5.png", encoded(5)), ("a/5.json", b"{broken"),
    ]  # fmt: skip
    found = {
        item.uri.rpartition("=")[2]: item.label for item in items(open_source(write_tar(tmp_path / "t.tar", members)))
    }
    assert found == {"a/1.png": "7", "a/2.jpg": "fox", "a/3.seg.png": None, "a/4.txt": None, "a/5.png": None}


def test_a_tar_cut_short_loses_only_its_last_member(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "t.tar", [(f"{i}.png", encoded(i)) for i in range(5)])
    whole = read_set(tar, 32)
    data = tar.read_bytes()
    with tarfile.open(tar) as opened:
        last = opened.getmembers()[-1]
    tar.write_bytes(data[: last.offset_data + 100])
    cut = read_set(tar, 32)
    assert cut.hashes == whole.hashes[:4]
    assert [(refusal.uri, refusal.reason) for refusal in cut.rejected] == [(whole.uris[4], "truncated")]


@pytest.mark.parametrize("header", [b"\xff" * 512, None])  # overwritten, or with a length below zero
def test_a_broken_header_inside_a_tar_loses_one_member_and_is_rejected(tmp_path: Path, header: bytes | None) -> None:
    black = Image.fromarray(np.zeros((64, 64, 3), np.uint8))  # whole blocks of zeros, which also end a tar
    black.save(tmp_path / "black.bmp")
    pictures = [(f"{i}.png", encoded(i)) for i in range(6)]
    pictures[2] = ("2.bmp", (tmp_path / "black.bmp").read_bytes())
    tar = write_tar(tmp_path / "t.tar", pictures)
    whole = read_set(tar, 32)
    with tarfile.open(tar) as opened:
        lost = opened.getmembers()[2]
    if header is None:
        lost.size = -1024
        header = lost.tobuf(tarfile.GNU_FORMAT)
    data = bytearray(tar.read_bytes())
    data[lost.offset : lost.offset + 512] = header
    tar.write_bytes(data)
    read = read_set(tar, 32)
    assert read.hashes == whole.hashes[:2] + whole.hashes[3:]
    place = f"{tar.as_uri()}#member=at%20byte%20{lost.offset}"
    assert [(refusal.uri, refusal.reason) for refusal in read.rejected] == [(place, "broken tar header")]


def test_features_are_read_as_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    np.save(tmp_path / "f.npy", x)
    assert (read_set(tmp_path / "f.npy", 32).x == x).all()


@pytest.mark.parametrize(("kind", "value"), [("f4", np.nan), ("f2", -np.inf), ("f8", 1e300)])
@pytest.mark.parametrize("file", ["x.npy", "x.parquet"])
def test_a_vector_that_is_not_finite_is_one_line_with_its_row(tmp_path: Path, file: str, kind: str, value) -> None:
    x = np.random.default_rng(0).normal(size=(900, 3)).astype(kind)
    x[700, 2] = value
    if file == "x.npy":
        np.save(tmp_path / file, x)
    else:
        write_vectors(tmp_path / file, x)
    said = fails("pool", "build", tmp_path / file, "--out", tmp_path / "pool")
    assert f"{file}#row=700: its vector, row 700, holds NaN, infinity" in said
    assert not (tmp_path / "pool").exists()


def test_hugging_face_rows_without_bytes_are_read_from_their_path(tmp_path: Path) -> None:
    folder_of(tmp_path, 2)
    rows = [{"bytes": None, "path": "00000.png"}, {"bytes": None, "path": "gone.png"}, {"bytes": None, "path": None}]
    pq.write_table(
        pa.table({"image": pa.array(rows, pa.struct({"bytes": pa.binary(), "path": pa.string()}))}),
        tmp_path / "t.parquet",
    )
    found = read_set(tmp_path / "t.parquet", 32)
    assert len(found.x) == 1
    assert [refusal.reason for refusal in found.rejected] == ["missing", "missing"]


def test_a_listed_file_that_is_not_there_is_rejected_and_the_others_read(tmp_path: Path) -> None:
    folder_of(tmp_path, 2)
    (tmp_path / "l.csv").write_text("path\n00000.png\ngone.png\nnull\0byte.png\n00001.png\n")
    found = read_set(tmp_path / "l.csv", 32)
    assert len(found.x) == 2
    assert [refusal.reason for refusal in found.rejected] == ["missing", "missing"]


def test_capital_letters_in_the_ending_of_a_list_change_nothing(tmp_path: Path) -> None:
    folder_of(tmp_path, 2)
    (tmp_path / "L.TSV").write_text("path\tlabel\n00000.png\tfox\n")
    pq.write_table(pa.table({"path": ["00000.png"], "label": ["fox"]}), tmp_path / "L.PARQUET")
    for name in ("L.TSV", "L.PARQUET"):
        assert read_set(tmp_path / name, 32, labelled=True).labels == ["fox"]


def test_a_column_of_lists_is_no_label_and_whole_floats_are_integers(tmp_path: Path) -> None:
    """Detection sets call their lists of boxes `label`; pandas writes 1.0 where a column of integers has gaps."""
    columns = {"image": [encoded(0), encoded(1)], "label": [[1, 2], [3]], "class": [1.0, 2.0], "flag": [True, False]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read_set(tmp_path / "t.parquet", 32, labelled=True).labels == ["1", "2"]
    assert read_set(f"{tmp_path}/t.parquet?label=flag", 32, labelled=True).labels == ["True", "False"]
    with pytest.raises(UserError, match="no label column 'label'"):
        read_set(f"{tmp_path}/t.parquet?label=label", 32)


def test_folders_that_are_called_as_files_of_cifar_are_class_folders(tmp_path: Path) -> None:
    folder_of(tmp_path, 4, ("train", "meta"))
    assert read_set(tmp_path, 32, labelled=True).labels == ["meta", "meta", "train", "train"]


def faults(tmp: Path) -> dict[str, str]:
    (tmp / "empty").mkdir()
    (tmp / "empty.csv").write_text("")
    (tmp / "headless.csv").write_text("a,b\n1,2\n")
    (tmp / "rowless.csv").write_text("path,label\n")
    (tmp / "text.tar").write_text("no tar")
    (tmp / "text.parquet").write_text("no parquet")
    (tmp / "text.npy").write_text("no array")
    (tmp / "text.npz").write_text("no archive")
    (tmp / "notes.doc").write_text("no source")
    np.save(tmp / "ints.npy", np.zeros((3, 4), np.int64))
    np.save(tmp / "float_images.npy", np.zeros((3, 4, 4, 3), np.float32))
    np.save(tmp / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(tmp / "none.npy", np.zeros((0, 8, 8, 3), np.uint8))
    np.save(tmp / "number.npy", np.float32(1))
    with open(tmp / "archive.npy", "wb") as file:
        np.savez(file, x=np.zeros((2, 8, 8, 3), np.uint8))
    write_hugging_face(tmp / "hf.parquet", 4)
    return {
        "gone/away": "no such file or folder",
        "empty": "no image in this folder",
        "empty.csv": "the list is empty",
        "headless.csv": "no column of paths",
        "rowless.csv": "no row",
        "text.tar": "not a readable tar",
        "text.parquet": "not a readable parquet",
        "text.npy": "not a readable .npy",
        "text.npz": "not a readable .npz",
        "notes.doc": "not a source",
        "ints.npy": "float32 or float64",
        "float_images.npy": "expected images",
        "objects.npy": "not a readable .npy",
        "none.npy": "no rows",
        "number.npy": "not a readable .npy",
        "archive.npy": "not a readable .npy",
        "hf.parquet?split=nowhere": "split is one of even, third",
        "hf.parquet?label=kind": "no label column 'kind'",
        "hf.parquet?fold=1": "no filter column 'fold'",
    }


def test_faults_of_a_whole_source_are_one_line_that_names_it(tmp_path: Path) -> None:
    for spec, message in faults(tmp_path).items():
        with pytest.raises(UserError) as caught:
            open_sources(str(tmp_path / spec))
        assert message in str(caught.value), spec
        assert spec.partition("?")[0] in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no such file or folder"):
        open_sources("~nobody-of-this-name/photos")


def test_features_of_different_widths_do_not_mix(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 4), np.float32))
    np.save(tmp_path / "b.npy", np.zeros((2, 5), np.float32))
    folder_of(tmp_path / "c", 1)
    for pair in (["a.npy", "b.npy"], ["a.npy", "c"]):
        with pytest.raises(UserError, match="widths differ"):
            open_sources([tmp_path / name for name in pair])


def test_labels_are_asked_for_only_where_they_are_needed(tmp_path: Path) -> None:
    folder_of(tmp_path / "flat", 2)
    assert read_set(tmp_path / "flat", 32).labels is None
    with pytest.raises(UserError, match="no label for file://"):
        read_set(tmp_path / "flat", 32, labelled=True)
    folder_of(tmp_path / "classes", 2, ("cat", "dog"))
    (tmp_path / "classes" / "fox").mkdir()
    with pytest.raises(UserError, match="class folder 'fox' has no image"):
        read_set(tmp_path / "classes", 32, labelled=True)
    (tmp_path / "classes" / "fox" / "notes.txt").write_text("no picture")
    with pytest.raises(UserError, match=r"class 'fox' has no image that can be used.*notes\.txt: not an image"):
        read_set(tmp_path / "classes", 32, labelled=True)
    assert len(read_set(tmp_path / "classes", 32).x) == 2


def test_nothing_pickled_is_ever_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    np.save(tmp_path / "b.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", x=np.array([Bomb(), Bomb()], dtype=object))
    for name in ("b.npy", "b.npz"):
        with pytest.raises(UserError):
            open_source(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_the_real_sets_load_by_path_and_split(real_data: Path) -> None:
    found = read_set(f"{real_data}/svhn_test.parquet", 32, labelled=True)
    assert found.x.shape == (3000, 32, 32, 3)
    assert set(found.labels or ()) == set("0123456789")
    assert open_source(f"{real_data}/cifar10_train.parquet?split=val_in").count() == 2000


def test_what_desktops_leave_in_folders_is_no_item(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "cats" / "a.png")
    for name in (".DS_Store", "Thumbs.db", "._a.png", "desktop.ini"):
        (tmp_path / "cats" / name).write_bytes(b"litter")
    (tmp_path / "cats" / "notes.txt").write_text("no litter: it is counted, and rejected with a reason")
    assert open_source(tmp_path).count() == 2


# --- vectors that exist already


def vectors(n: int, d: int = 5, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d)).astype(dtype)


def write_vectors(file: Path, x: np.ndarray, kind: str = "list", name: str = "embedding", **columns: list) -> Path:
    value = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}[str(x.dtype)]
    whole = {"list": pa.list_(value), "large": pa.large_list(value), "fixed": pa.list_(value, x.shape[1])}[kind]
    column = pa.array([list(row) for row in x], whole)
    pq.write_table(pa.table({**columns, name: column}), file, row_group_size=4)
    return file


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_column_of_vectors_is_read_with_labels_and_the_pictures_they_are_of(
    tmp_path: Path, kind: str, dtype: str
) -> None:
    x, paths = vectors(11, dtype=dtype), [f"photos/{i} é.jpg" for i in range(10)] + ["https://host/10.jpg"]
    table = write_vectors(tmp_path / "x.parquet", x, kind, label=["cat", "dog", "cow"] * 3 + ["cat", "dog"], path=paths)
    source = open_source(table)
    assert (source.width, source.features) == (5, np.float16 if dtype == "float16" else np.float32)
    read = read_set(table, 32, labelled=True)
    assert (read.x == x.astype(source.features)).all()
    assert read.labels == ["cat", "dog", "cow"] * 3 + ["cat", "dog"]
    assert read.uris[3] == (tmp_path / "photos" / "3 é.jpg").as_uri()
    assert read.uris[10] == "https://host/10.jpg"


def test_a_question_mark_names_the_column_of_vectors_and_filters_rows(tmp_path: Path) -> None:
    x = vectors(11)
    table = write_vectors(tmp_path / "x.parquet", x, name="dino", split=["a", "b"] * 5 + ["a"])
    assert (read_set(f"{table}?features=dino&split=b", 32).x == x[1::2]).all()
    both = pq.read_table(table).append_column("embedding", pa.array([[0.5] * 3] * 11))
    pq.write_table(both, tmp_path / "two.parquet")
    assert read_set(f"{tmp_path / 'two.parquet'}?features=dino", 32).x.shape == (11, 5)
    assert read_set(f"{tmp_path / 'two.parquet'}?features=embedding", 32).uris[2].endswith("two.parquet#row=2")
    pictures = pq.read_table(write_hugging_face(tmp_path / "hf.parquet", 11)).append_column("embedding", both["dino"])
    pq.write_table(pictures, tmp_path / "hf.parquet")
    assert read_set(tmp_path / "hf.parquet", 32).x.shape == (11, 32, 32, 3)  # pictures, unless vectors are asked for
    assert (read_set(f"{tmp_path / 'hf.parquet'}?features=embedding", 32).x == x).all()


def test_tables_of_vectors_are_many_sources_and_can_be_taken_up_anywhere(tmp_path: Path) -> None:
    x = vectors(20)
    (tmp_path / "in").mkdir()
    write_vectors(tmp_path / "in" / "0.parquet", x[:11])
    write_vectors(tmp_path / "in" / "1.parquet", x[11:], "fixed")
    assert (read_set(tmp_path / "in", 32).x == x).all()
    source = open_source(tmp_path / "in" / "0.parquet")
    for start in (0, 3, 4, 10, 11):
        assert [item.uri.rpartition("=")[2] for item in items(source, start)] == [str(i) for i in range(start, 11)]


def test_clip_retrievals_folder_gives_vectors_with_the_pictures_they_are_of(tmp_path: Path) -> None:
    x = vectors(12, dtype="float16")
    for name in ("img_emb", "metadata", "text_emb"):
        (tmp_path / "laion" / name).mkdir(parents=True)
    for number, rows in ((2, slice(0, 5)), (10, slice(5, 12))):  # in the order of numbers, not of names
        np.save(tmp_path / "laion" / "img_emb" / f"img_emb_{number}.npy", x[rows])
        ids = list(range(12))[rows]
        table = pa.table({"image_path": [f"{i:05d}.jpg" for i in ids], "caption": ["x"] * len(ids), "label": ids})
        pq.write_table(table, tmp_path / "laion" / "metadata" / f"metadata_{number}.parquet")
    read = read_set(tmp_path / "laion", 32, labelled=True)
    assert (read.x == x).all()
    assert read.uris == [(tmp_path / "laion" / f"{i:05d}.jpg").as_uri() for i in range(12)]
    assert read.labels == [str(i) for i in range(12)]
    (tmp_path / "laion" / "metadata" / "metadata_10.parquet").unlink()
    with pytest.raises(UserError, match=r"img_emb_10.npy has no table in metadata/"):
        open_sources(tmp_path / "laion")


@pytest.mark.parametrize(
    ("add", "take", "said"),
    [
        ((), "img_emb/img_emb_1.npy", "metadata_1.parquet has no vectors in img_emb/ (1 such)"),
        (("img_emb/b_1.npy",), "", "img_emb_1.npy and b_1.npy have one number"),
        (("img_emb/img_emb_01.npy",), "", "img_emb_1.npy and img_emb_01.npy have one number"),
        (("img_emb/more.npy",), "", "more.npy has no number"),
    ],
)
def test_no_vectors_of_clip_retrieval_are_left_out_in_silence(tmp_path: Path, add, take, said) -> None:
    x = vectors(4, dtype="float16")
    for name in ("img_emb", "metadata"):
        (tmp_path / name).mkdir()
    for number in range(2):
        np.save(tmp_path / "img_emb" / f"img_emb_{number}.npy", x)
        table = pa.table({"image_path": [f"{number}-{i}.jpg" for i in range(4)]})
        pq.write_table(table, tmp_path / "metadata" / f"metadata_{number}.parquet")
    assert len(read_set(tmp_path, 32).x) == 8
    for name in add:
        np.save(tmp_path / name, x)
    if take:
        (tmp_path / take).unlink()
    with pytest.raises(UserError) as error:
        open_sources(tmp_path)
    assert all(word in str(error.value) for word in said.split(" and ")) and "\n" not in str(error.value)


def test_an_array_of_vectors_has_its_pictures_and_labels_in_a_list_beside_it(tmp_path: Path) -> None:
    x = vectors(4, dtype="float64")
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "list.csv").write_text("path,species\na.jpg,cat\nb.jpg,dog\n,cat\nfile:///d.jpg,\n")
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\nc.jpg\nd.jpg\n")
    read = read_set(f"{tmp_path / 'x.npy'}?paths=list.csv&label=species", 32)
    assert (read.x == x.astype(np.float32)).all()
    assert read.x.dtype == np.float32
    assert read.uris == [
        (tmp_path / "a.jpg").as_uri(), (tmp_path / "b.jpg").as_uri(), f"{(tmp_path / 'x.npy').as_uri()}#row=2",
        "file:///d.jpg",
    ]  # fmt: skip
    labels = [item.label for item in items(open_source(f"{tmp_path / 'x.npy'}?labels=list.csv&label=species"))]
    assert labels == ["cat", "dog", "cat", None]
    assert read_set(f"{tmp_path / 'x.npy'}?paths=list.txt", 32).uris[3] == (tmp_path / "d.jpg").as_uri()


def test_faults_of_vectors_are_one_line_and_a_row_without_one_is_only_rejected(tmp_path: Path) -> None:
    x = vectors(6)
    write_vectors(tmp_path / "x.parquet", x)
    pq.write_table(pa.table({"embedding": [[1.0, 2.0], None, [3.0, 4.0]]}), tmp_path / "null.parquet")
    read = read_set(tmp_path / "null.parquet", 32)
    assert read.x.tolist() == [[1, 2], [3, 4]]
    assert [(one.uri.rpartition("#")[2], one.reason) for one in read.rejected] == [("row=1", "no vector")]
    x[2, 3] = np.nan
    pq.write_table(pa.table({"embedding": [[1.0, 2.0], [3.0], [3.0, 4.0]]}), tmp_path / "mixed.parquet")
    pq.write_table(pa.table({"embedding": pa.array([None, None], pa.list_(pa.float32()))}), tmp_path / "none.parquet")
    pq.write_table(pa.table({"embedding": pa.array([[]], pa.list_(pa.float32()))}), tmp_path / "empty.parquet")
    write_vectors(tmp_path / "nan.parquet", np.full((3, 2), np.nan))
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "short.csv").write_text("path\na.jpg\n")
    (tmp_path / "odd.csv").write_text("size\n3\n")
    for spec, said in {
        "mixed.parquet": "'embedding' has 1 numbers in row 1 and 2 in the first",
        "none.parquet": "holds no list",
        "empty.parquet": "are empty",
        "nan.parquet": "row 0, holds NaN, infinity or a number beyond float32",
        "x.npy": "row 2, holds NaN",
        "x.parquet?features=clip": "there is no features column 'clip'. Its columns are embedding.",
        "x.npy?paths=short.csv": "1 rows, but",
        "x.npy?paths=odd.csv": "no column of paths or labels",
        "x.npy?paths=gone.csv": "there is no such file",
        "x.npy?paths=short.csv&split=a": "asked for 'split'",
    }.items():
        with pytest.raises(UserError) as error:
            read_set(tmp_path / spec, 32)
        assert said in str(error.value)
        assert "\n" not in str(error.value)
