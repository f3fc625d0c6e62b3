"""What a release stands on: versions that agree, a citation, dependencies with an oldest version, archives without a clock."""

import io
import re
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import odst

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from release import BESIDE, faults, minimum, repack  # noqa: E402

sys.path.pop(0)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_citation_is_whole_and_of_this_version_and_paper() -> None:
    yaml = pytest.importorskip("yaml")
    cited, project = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8")), PROJECT["project"]
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert (cited["title"], str(cited["version"]), cited["license"]) == tuple(
        project[key] for key in ("name", "version", "license")
    )
    (paper,) = cited["references"]
    assert paper["url"] == project["urls"]["Paper"]
    assert paper["doi"] == f"10.48550/arXiv.{paper['url'].rpartition('/')[2]}"
    assert [one["family-names"] for one in paper["authors"]] == ["Augustin", "Hein"]


def test_the_pythons_that_are_promised_are_those_that_are_tested() -> None:
    promised = re.findall(r"Python :: (3\.\d+)'", str(PROJECT["project"]["classifiers"]))
    assert promised[0] == PROJECT["project"]["requires-python"].removeprefix(">=")
    for name in ("check", "release"):
        text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
        assert f"python: {promised}".replace("'", '"') in text


def test_a_users_type_checker_finds_our_types() -> None:
    assert Path(odst.__file__).with_name("py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["odst"]
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]


def test_every_data_file_of_the_package_is_in_the_wheel() -> None:
    package = Path(odst.__file__).parent
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["odst"]
    packed = {file for pattern in patterns for file in package.glob(pattern)}
    there = {file for file in package.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert there == packed


def test_another_version_than_the_projects_is_no_release() -> None:
    assert faults("9.9.9")[0] == f"pyproject.toml has version {PROJECT['project']['version']}, the tag says 9.9.9"
    said = faults(PROJECT["project"]["version"])
    assert not any("pyproject.toml has version" in one or "CITATION" in one for one in said)


def test_every_dependency_but_torch_has_an_oldest_version() -> None:
    oldest = dict(one.split("==") for one in minimum() if one not in BESIDE)
    names = [re.match(r"[\w.-]+", one)[0] for one in PROJECT["project"]["dependencies"]]  # type: ignore[index]
    assert set(names) - {"torch"} <= oldest.keys() and "torch" not in oldest
    assert oldest["numpy"] == "1.26" and "odst" not in oldest
    assert oldest["moto"] == "5.2.4"  # asked for with an extra: moto[s3]


def test_a_repacked_archive_does_not_know_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name, time in (("a", 1), ("b", 2_000_000_000)):
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as tar:
            for file in ("x/2", "x/1") if time == 1 else ("x/1", "x/2"):
                member = tarfile.TarInfo(file)
                member.size, member.mtime, member.uname = 3, time, f"user{time}"
                tar.addfile(member, io.BytesIO(file.encode()))
        repack(tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert [(one.name, one.mtime, tar.extractfile(one).read()) for one in tar] == [  # type: ignore[union-attr]
            ("x/1", 1_700_000_000, b"x/1"),
            ("x/2", 1_700_000_000, b"x/2"),
        ]
