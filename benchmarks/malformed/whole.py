"""Whole sources, one function a format: into a folder; back comes the spec, and the files that may be damaged."""

import io
import json
import pickle
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

N, SIDE = 12, 16  # rows of a source, pixels


def picture(rng: np.random.Generator, format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(file, format)
    return file.getvalue()


# whole sources, one function a format: into `folder`, back comes the spec and the files that may be damaged ------------------

Made = tuple[str, list[Path]]


def images_npy(folder: Path, rng: np.random.Generator) -> Made:
    np.save(folder / "x.npy", rng.integers(0, 256, (N, SIDE, SIDE, 3), np.uint8))
    np.save(folder / "y.npy", np.arange(N) % 3)
    return f"{folder}/x.npy?labels=y.npy", [folder / "x.npy", folder / "y.npy"]


def features_npy(folder: Path, rng: np.random.Generator) -> Made:
    np.save(folder / "x.npy", rng.normal(size=(N, 5)).astype(np.float32))
    return f"{folder}/x.npy", [folder / "x.npy"]


def listed_npy(folder: Path, rng: np.random.Generator) -> Made:
    np.save(folder / "x.npy", rng.normal(size=(N, 5)).astype(np.float32))
    (folder / "list.csv").write_text("path,label\n" + "".join(f"{i}.png,{i % 3}\n" for i in range(N)))
    return f"{folder}/x.npy?paths=list.csv", [folder / "x.npy", folder / "list.csv"]


def npz(folder: Path, rng: np.random.Generator) -> Made:
    x = rng.integers(0, 256, (N, SIDE, SIDE, 3), np.uint8)
    np.savez_compressed(folder / "x.npz", x=x, labels=np.arange(N) % 3, classes=np.array(["a", "b", "c"]))
    return f"{folder}/x.npz", [folder / "x.npz"]


def picture_table(folder: Path, rng: np.random.Generator) -> Made:
    image = [{"bytes": picture(rng), "path": None} for _ in range(N)]
    info = {"info": {"features": {"label": {"names": ["a", "b", "c"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": image, "label": [i % 3 for i in range(N)]})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(info)}), folder / "x.parquet")
    return f"{folder}/x.parquet", [folder / "x.parquet"]


def vector_table(folder: Path, rng: np.random.Generator) -> Made:
    vectors = rng.normal(size=(N, 5)).astype(np.float32).tolist()
    pq.write_table(pa.table({"embedding": pa.array(vectors, pa.list_(pa.float32()))}), folder / "x.parquet")
    return f"{folder}/x.parquet", [folder / "x.parquet"]


def path_table(folder: Path, rng: np.random.Generator) -> Made:
    _pictures(folder, rng)
    pq.write_table(pa.table({"path": [f"{i}.png" for i in range(N)], "label": ["a", "b"] * 6}), folder / "x.parquet")
    return f"{folder}/x.parquet", [folder / "x.parquet"]


def csv_list(folder: Path, rng: np.random.Generator) -> Made:
    _pictures(folder, rng)
    (folder / "x.csv").write_text("path,label\n" + "".join(f"{i}.png,{i % 3}\n" for i in range(N)))
    return f"{folder}/x.csv", [folder / "x.csv"]


def tsv_list(folder: Path, rng: np.random.Generator) -> Made:
    _pictures(folder, rng)
    (folder / "x.tsv").write_text("path\tlabel\n" + "".join(f'"{i}.png"\t{i % 3}\n' for i in range(N)))
    return f"{folder}/x.tsv", [folder / "x.tsv"]


def tar(folder: Path, rng: np.random.Generator) -> Made:
    _tar(folder / "x.tar", {f"{i}.{e}": d for i in range(N) for e, d in (("png", picture(rng)), ("cls", b"%d" % i))})
    return f"{folder}/x.tar", [folder / "x.tar"]


def json_tar(folder: Path, rng: np.random.Generator) -> Made:
    members = {f"{i}.{e}": d for i in range(N) for e, d in (("jpg", picture(rng, "JPEG")), ("json", b'{"label": 3}'))}
    _tar(folder / "x.tar", members)
    return f"{folder}/x.tar", [folder / "x.tar"]


def tree(folder: Path, rng: np.random.Generator) -> Made:
    files = []
    for name in ("a", "b"):
        (folder / "tree" / name).mkdir(parents=True)
        for i, format in enumerate(("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")):
            files.append(folder / "tree" / name / f"{i}.{format.lower()}")
            files[-1].write_bytes(picture(rng, format))
    return f"{folder}/tree", files


def cifar_pickle(folder: Path, rng: np.random.Generator) -> Made:
    batch = {"data": rng.integers(0, 256, (N, 3072), np.uint8), "labels": [i % 10 for i in range(N)]}
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch, 2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {i}" for i in range(10)]}, 2))
    return str(folder), [folder / "data_batch_1", folder / "batches.meta"]


def cifar100_pickle(folder: Path, rng: np.random.Generator) -> Made:
    batch = {"data": rng.integers(0, 256, (N, 3072), np.uint8), "fine_labels": list(range(N))}
    (folder / "train").write_bytes(pickle.dumps(batch, 2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"class {i}" for i in range(100)]}, 2))
    return f"{folder}/train", [folder / "train", folder / "meta"]


def cifar_binary(folder: Path, rng: np.random.Generator) -> Made:
    records = rng.integers(0, 256, (N, 3073), np.uint8)
    records[:, 0] = np.arange(N) % 10
    records.tofile(folder / "data_batch_1.bin")
    (folder / "batches.meta.txt").write_text("\n".join(f"class{i}" for i in range(10)))
    return str(folder), [folder / "data_batch_1.bin", folder / "batches.meta.txt"]


def svhn(folder: Path, rng: np.random.Generator) -> Made:
    from scipy.io import savemat

    x, y = rng.integers(0, 256, (32, 32, 3, N), np.uint8), (np.arange(N) % 10 + 1)[:, None].astype(np.uint8)
    savemat(folder / "train_32x32.mat", {"X": x, "y": y}, do_compression=True)
    return f"{folder}/train_32x32.mat", [folder / "train_32x32.mat"]


def tiny_images(folder: Path, rng: np.random.Generator) -> Made:
    rng.integers(0, 256, N * 3072, np.uint8).tofile(folder / "tiny_images.bin")
    return f"{folder}/tiny_images.bin", [folder / "tiny_images.bin"]


def cifar10_1(folder: Path, rng: np.random.Generator) -> Made:
    np.save(folder / "cifar10.1_v6_data.npy", rng.integers(0, 256, (N, 32, 32, 3), np.uint8))
    np.save(folder / "cifar10.1_v6_labels.npy", (np.arange(N) % 10).astype(np.int32))
    return f"{folder}/cifar10.1_v6_data.npy", [folder / f"cifar10.1_v6_{what}.npy" for what in ("data", "labels")]


def cifar_c(folder: Path, rng: np.random.Generator) -> Made:
    from odst.vision.corruptions import CORRUPTIONS

    for name in CORRUPTIONS:
        np.save(folder / f"{name}.npy", rng.integers(0, 256, (10, 8, 8, 3), np.uint8))
    np.save(folder / "labels.npy", np.arange(10) % 10)
    return str(folder), [folder / "labels.npy", folder / f"{CORRUPTIONS[0]}.npy", folder / f"{CORRUPTIONS[7]}.npy"]


def clip_retrieval(folder: Path, rng: np.random.Generator) -> Made:
    (folder / "img_emb").mkdir()
    (folder / "metadata").mkdir()
    np.save(folder / "img_emb" / "img_emb_0.npy", rng.normal(size=(N, 5)).astype(np.float16))
    table = pa.table({"image_path": [f"{i}.jpg" for i in range(N)], "caption": ["x"] * N})
    pq.write_table(table, folder / "metadata" / "metadata_0.parquet")
    return str(folder), [folder / "img_emb" / "img_emb_0.npy", folder / "metadata" / "metadata_0.parquet"]


FORMATS: tuple[Callable[[Path, np.random.Generator], Made], ...] = (
    images_npy, features_npy, listed_npy, npz, picture_table, vector_table, path_table, csv_list, tsv_list, tar, json_tar,
    tree, cifar_pickle, cifar100_pickle, cifar_binary, svhn, tiny_images, cifar10_1, cifar_c, clip_retrieval,
)  # fmt: skip


def _pictures(folder: Path, rng: np.random.Generator) -> None:
    for i in range(N):
        (folder / f"{i}.png").write_bytes(picture(rng))


def _tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


# what the others share

Cases = Iterator[tuple[str, str]]
X = np.zeros((N, SIDE, SIDE, 3), np.uint8)


def header(shape: str, descr: str = "'|u1'", order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
