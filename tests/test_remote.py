"""Sources and pools on an object store: a real S3 server on the loopback, with real rights."""

import json
import os
import pickle
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import commands
import tiny_encoder
from odst.data.features import open_features
from odst.data.pool import open_pool, verify_pool
from odst.data.remote import address_of, fetch
from odst.data.sources import open_sources
from odst.data.vectors import Embedder
from odst.data.views import opener
from odst.data.visible import state_of_sources
from odst.engine.interface import running_on
from odst.engine.local import Local
from odst.errors import UserError
from processes import artefacts, command

pytest.importorskip("s3fs", reason="needs odst[s3]")
pytest.importorskip("moto", reason="needs moto")

READS = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.fixture(autouse=True)
def store(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty server with a bucket, an empty cache, and what an owner has in the environment."""
    urllib.request.urlopen(urllib.request.Request(f"{server}/moto-api/reset", method="POST")).close()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "owner", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path / "home"),
        "ODST_CACHE": str(tmp_path / "cache"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    from fsspec import filesystem

    files = filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    files.mkdir("bucket")
    return files


@pytest.fixture
def pictures(tmp_path: Path, store) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(3):
        np.save(folder / f"{i}.npy", rng.integers(256, size=(40, 8, 8, 3), dtype=np.uint8))
    store.put(str(folder), "bucket/photos", recursive=True)
    return folder


def build(source: object, out: object) -> tuple:
    return "pool", "build", source, "--out", out, "--size", "8"


def here(*words: object) -> str:
    done = commands.odst(*words)
    assert done.code == 0, done.err
    return done.out


def test_a_pool_from_a_bucket_into_a_bucket_is_the_pool_of_the_same_files(store, pictures: Path, tmp_path: Path):
    here(*build(pictures / "*.npy", tmp_path / "local"))
    assert "120 images" in here(*build("s3://bucket/photos/*.npy", "s3://bucket/made/pool"))
    store.get("bucket/made/pool", str(tmp_path / "got"), recursive=True)
    got, local = artefacts(tmp_path / "got"), artefacts(tmp_path / "local")
    assert got.keys() == local.keys()
    assert got["shards/00000.npy"] == local["shards/00000.npy"]
    pool = open_pool(tmp_path / "got")
    assert pool.identity == open_pool(tmp_path / "local").identity
    assert pool.source(np.array([0, 119])) == ["s3://bucket/photos/0.npy#row=0", "s3://bucket/photos/2.npy#row=39"]
    assert "every file is what it was" in here("pool", "verify", "s3://bucket/made/pool")
    assert "s3://bucket/made/pool: 120 images" in here("pool", "info", "s3://bucket/made/pool")
    here(*build("s3://bucket/photos/*.npy", "s3://bucket/made/pool"))  # it is there already
    assert "other size" in commands.fails(*build("s3://bucket/photos/*.npy", "s3://bucket/made/pool"), "--size", "6")


def test_what_was_fetched_is_not_fetched_again_until_it_changes(store, pictures: Path):
    first = fetch("s3://bucket/photos")
    assert address_of(first / "1.npy") == "s3://bucket/photos/1.npy"
    before = {file.name: file.stat().st_ino for file in first.iterdir()}
    whole, one, other = (
        state_of_sources([f"s3://bucket/{name}"]) for name in ("photos", "photos/1.npy", "photos/0.npy")
    )
    assert fetch("s3://bucket/photos/") == first
    assert {file.name: file.stat().st_ino for file in first.iterdir()} == before
    np.save(pictures / "1.npy", np.ones((2, 8, 8, 3), np.uint8))
    store.put_file(str(pictures / "1.npy"), "bucket/photos/1.npy")
    store.rm_file("bucket/photos/2.npy")
    fetch("s3://bucket/photos")
    after = {file.name: file.stat().st_ino for file in first.iterdir()}
    assert after.keys() == {"0.npy", "1.npy"}
    assert after["0.npy"] == before["0.npy"]
    assert len(np.load(first / "1.npy")) == 2
    for file in first.iterdir():
        os.utime(file)  # it is the store that says what changes
    assert state_of_sources(["s3://bucket/photos"]) != whole
    assert state_of_sources(["s3://bucket/photos/1.npy"]) != one
    assert state_of_sources(["s3://bucket/photos/0.npy"]) == other


def test_labels_that_stand_beside_an_array_come_along(store, pictures: Path, tmp_path: Path):
    np.save(tmp_path / "y.npy", np.array(["cat", "dog"] * 20))
    store.put_file(str(tmp_path / "y.npy"), "bucket/photos/y.npy")
    (source,) = open_sources("s3://bucket/photos/0.npy?labels=y.npy")
    items = [item for part in source.parts(0, 64) for item in part]
    assert [item.label for item in items[:2]] == ["cat", "dog"]


def test_a_run_reads_its_sets_from_a_bucket(store, tmp_path: Path):
    rng = np.random.default_rng(0)
    names = {"labelled": 20, "val_in": 40, "val_out": 30, "pool": 90}
    for name, n in names.items():
        y = np.arange(n) % 2
        x = rng.integers(100, size=(n, 8, 8, 3)) + 100 * y[:, None, None, None]
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.uint8), labels=np.array(["dark", "light"])[y])
        store.put_file(str(tmp_path / f"{name}.npz"), f"bucket/{name}.npz")
    here(*build("s3://bucket/pool.npz", "s3://bucket/pool"))
    here(*build(tmp_path / "pool.npz", tmp_path / "pool"))
    ends = {"labelled": ".npz", "val_in": ".npz", "val_out": ".npz", "pool": ""}
    words = {"data.size": 8, "method.alpha": 0.05, "model.name": "tiny", "training.phases": "[{steps=3,lr=0.05}]"}
    for place, root in (("here", tmp_path), ("there", "s3://bucket")):
        config = tmp_path / f"{place}.toml"
        config.write_text("[data]\n" + "".join(f'{name} = "{root}/{name}{end}"\n' for name, end in ends.items()))
        changes = [word for key, value in words.items() for word in ("--set", f"{key}={value}")]
        here("run", config, "--out", tmp_path / place, *changes)
    made, expected = artefacts(tmp_path / "there"), artefacts(tmp_path / "here")
    assert made["round-1/model.safetensors"] == expected["round-1/model.safetensors"]
    assert made["metrics.jsonl"] == expected["metrics.jsonl"]


def test_the_cache_lets_go_of_what_is_unused_the_longest_and_never_of_what_is_in_use(
    store, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    words = [
        sys.executable,
        "-c",
        "import sys; from odst.data.remote import fetch; fetch(sys.argv[1]); print(flush=True); input()",
    ]
    size = (pictures / "0.npy").stat().st_size
    monkeypatch.setenv("ODST_CACHE_GB", str(2.5 * size / 1e9))
    for i in (0, 1):  # by processes that have ended
        subprocess.run([*words, f"s3://bucket/photos/{i}.npy"], input="\n", text=True, check=True, capture_output=True)
    with subprocess.Popen([*words, "s3://bucket/photos/0.npy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout and user.stdin
        user.stdout.readline()
        fetch("s3://bucket/photos/2.npy")  # 1 was used last but one, and 0 is in use
        assert sorted(file.name for file in (tmp_path / "cache").rglob("*.npy") if file.is_file()) == ["0.npy", "2.npy"]
        with pytest.raises(UserError, match=r"beyond the cache's .* GB in .*\. Set ODST_CACHE_GB higher"):
            fetch("s3://bucket/photos/1.npy")
        user.communicate(b"\n")


def test_a_build_that_fails_leaves_nothing_in_the_bucket(store, tmp_path: Path):
    store.pipe_file("bucket/photos/broken.npy", b"nothing")
    commands.fails(*build("s3://bucket/photos", "s3://bucket/pool"))
    assert store.find("bucket/pool") == []


def test_a_bucket_that_is_missing_or_whose_name_is_forgotten_is_one_line(store, tmp_path: Path):
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8, 3), np.uint8))
    assert "s3://nowhere/photos: there is no such bucket" in commands.fails(
        *build("s3://nowhere/photos", tmp_path / "p")
    )
    assert "s3://nowhere/pool: there is no such bucket" in commands.fails(
        *build(tmp_path / "x.npy", "s3://nowhere/pool")
    )
    assert "s3://bucket/none: there is nothing there" in commands.fails(*build("s3://bucket/none", tmp_path / "p"))
    assert "s3://: which bucket?" in commands.fails(*build("s3://", tmp_path / "p"))
    assert not (tmp_path / "p").exists()


def test_a_bucket_that_may_only_be_read_is_read_and_refuses_a_pool_before_the_work(
    store, server: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import boto3

    iam = boto3.client("iam")
    iam.create_user(UserName="guest")
    iam.put_user_policy(UserName="guest", PolicyName="reads", PolicyDocument=json.dumps(READS))
    key = iam.create_access_key(UserName="guest")["AccessKey"]
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"], "OMP_NUM_THREADS": "1",
    }  # fmt: skip

    def called(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command(*words), capture_output=True, text=True, env=environment, timeout=120)

    def rights(count: str) -> None:
        address = f"{server}/moto-api/reset-auth"
        plain = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(address, count.encode(), plain, method="POST")).close()

    rights("0")  # from now on they are checked
    try:
        refused = called(*build(pictures / "*.npy", "s3://bucket/pool"))
        read = called(*build("s3://bucket/photos/*.npy", tmp_path / "pool"))
    finally:
        rights("inf")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("odst: s3://bucket/pool: you may not write there (")
    assert read.returncode == 0, read.stderr
    assert store.find("bucket/pool") == []


def test_without_credentials_is_one_line(pictures: Path, tmp_path: Path):
    environment = {
        name: value for name, value in os.environ.items() if "AWS_ACCESS" not in name and "SECRET" not in name
    }
    words = command(*build("s3://bucket/photos", tmp_path / "pool"))
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "s3://bucket/photos: there are no credentials. Set AWS_ACCESS_KEY_ID" in done.stderr


FAR = """
import pickle, sys
from pathlib import Path
x = pickle.loads(Path(sys.argv[1]).read_bytes())()
print(x[:].tobytes().hex())
"""


def test_another_machine_fetches_vectors_and_pixels_into_a_cache_of_its_own(
    store, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    spec = tiny_encoder.save(tmp_path / "tiny.pt")
    here(*build("s3://bucket/photos/*.npy", "s3://bucket/pool"), "--embed", spec)
    path = fetch("s3://bucket/pool")
    for x in (open_pool(path).x, open_features(path, Embedder(spec).identity).x):
        (tmp_path / "sent").write_bytes(pickle.dumps(opener(x)))
        far = os.environ | {"ODST_CACHE": str(tmp_path / "far")}
        words = [sys.executable, "-c", FAR, str(tmp_path / "sent")]
        monkeypatch.chdir(tmp_path)
        (tmp_path / "cache").rename(tmp_path / "gone")
        done = subprocess.run(words, capture_output=True, text=True, env=far, timeout=120)
        (tmp_path / "gone").rename(tmp_path / "cache")
        assert bytes.fromhex(done.stdout) == x[:].tobytes(), done.stderr


def test_what_was_fetched_is_verified_where_it_lies(store, pictures: Path):
    class Elsewhere(Local):
        alone = False

        def map(self, make, items):
            raise AssertionError("no other machine has these files")

    here(*build("s3://bucket/photos/*.npy", "s3://bucket/pool"))
    path = fetch("s3://bucket/pool")
    with running_on(Elsewhere()):
        verify_pool(path)
        (path / "index.parquet").write_bytes(b"changed")
        with pytest.raises(UserError, match=r"index\.parquet differs"):
            verify_pool(path)


def test_what_cannot_be_remote_says_so(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for words, says in [
        (("run", "digits", "--out", "s3://bucket/run"), "only packed pools are written to an object store"),
        (("dedup", "s3://bucket/pool", "--against", "x"), "the leak guard leaves its list in the pool's folder"),
        (build("https://bucket/photos", "pool"), "only object stores are read"),
        (build("nonsense://bucket/photos", "pool"), "nonsense"),
        (
            (*build(pictures, "s3://bucket/pool"), "--shard", "0/2"),
            "Name a folder that all of them see, and copy it to the bucket when it is whole.",
        ),
    ]:
        assert says in commands.fails(*words)
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != "home") == ["photos"]


def test_without_the_extra_an_address_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert "Type `pip install 'odst[s3]'`" in commands.fails(*build("s3://bucket/photos", tmp_path / "pool"))


@pytest.mark.parametrize("name", ["photos/../../../pwned.npy", "photos/./a.npy", "photos//a.npy"])
def test_an_object_whose_name_leads_elsewhere_is_not_fetched(store, pictures: Path, tmp_path: Path, name: str):
    from odst.data.remote import _check_names

    with pytest.raises(UserError, match="an object there is called"):
        _check_names("s3://bucket/photos", ["photos/0.npy", name])


def test_such_an_object_writes_nothing_outside_the_cache(store, pictures: Path, tmp_path: Path):
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    client.put_object(Bucket="bucket", Key="photos/../../../../pwned.npy", Body=(pictures / "0.npy").read_bytes())
    said = commands.fails(*build("s3://bucket/photos", tmp_path / "p"))
    assert "which no file may be" in said and not list(tmp_path.rglob("pwned.npy"))


def test_an_object_beside_a_folder_of_its_name_is_one_line(store, pictures: Path, tmp_path: Path):
    store.pipe_file("bucket/both/a", b"x")
    store.pipe_file("bucket/both/a/b", b"x")
    assert "both/a and both/a/b cannot both be files here" in commands.fails(*build("s3://bucket/both", tmp_path / "p"))


def test_readers_do_not_wait_for_each_other_and_a_writer_does_not_wait_for_them(store, pictures: Path, tmp_path: Path):
    here(*build("s3://bucket/photos/*.npy", "s3://bucket/pool"))
    words = [
        sys.executable,
        "-c",
        "import sys; from odst.data.remote import fetch; fetch(sys.argv[1]); print(flush=True); input()",
    ]
    with subprocess.Popen([*words, "s3://bucket/pool"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout and user.stdin
        user.stdout.readline()
        ended = subprocess.run([*words, "s3://bucket/pool"], input="\n", text=True, timeout=60, check=True)
        assert ended.returncode == 0
        refused = subprocess.run(
            command(*build("s3://bucket/photos/*.npy", "s3://bucket/pool")), capture_output=True, text=True, timeout=60
        )
        assert refused.returncode == 2
        assert "another process on this machine works with its copy" in refused.stderr
        user.communicate(b"\n")


@pytest.mark.parametrize(
    "address", ["ftp://nohost/x", "reference://x", "dir://x", "zip://x", "local:///tmp", "memory://x"]
)
def test_what_is_no_object_store_is_one_line(tmp_path: Path, address: str):
    assert "only object stores are read" in commands.fails(*build(address, tmp_path / "p"))


@pytest.mark.parametrize("text", ["nan", "-1", "0", "much"])
def test_a_cache_has_a_size(text: str, monkeypatch: pytest.MonkeyPatch):
    from odst.data.copies import limit

    monkeypatch.setenv("ODST_CACHE_GB", text)
    with pytest.raises(UserError, match=f"ODST_CACHE_GB is a number of gigabytes above 0, got '{text}'"):
        limit()
