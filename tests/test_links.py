"""Links that lead out of a source folder are not followed, unless one asks for it."""

import logging
import shutil
from pathlib import Path

import pytest

from commands import fails, odst
from odst.data.packing import build_pool
from odst.data.reading import read_set
from odst.data.sources import following, open_sources
from odst.errors import UserError
from pictures import encoded, folder_of


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four pictures, a link inside, and a picture and a folder of two elsewhere that links lead to."""
    folder_of(tmp_path / "photos", 4, ("cat", "dog"))
    folder_of(tmp_path / "secret", 2, ("album",))
    (tmp_path / "secret.png").write_bytes(encoded(9))
    (tmp_path / "photos" / "again.png").symlink_to("cat/00000.png")
    (tmp_path / "photos" / "cat" / "out.png").symlink_to("../../secret.png")
    (tmp_path / "photos" / "dog" / "album").symlink_to(tmp_path / "secret" / "album")
    return tmp_path / "photos"


def test_what_lies_behind_links_out_of_a_folder_is_left_out_and_counted(
    photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = read_set(str(photos), 8)
    assert sorted(uri.rsplit("/", 1)[1] for uri in found.uris) == ["00000.png", "00001.png", "00002.png", "00003.png", "again.png"]  # fmt: skip
    assert {refusal.reason for refusal in found.rejected} == {"link out of the source"}
    assert f"{photos}: 2 links lead out of it, left out. --follow-links" in caplog.text


def test_they_are_followed_where_it_is_asked_for(photos: Path) -> None:
    found = read_set(following(str(photos)), 8)
    assert len(found.uris) == 8 and not found.rejected
    manifest = build_pool(f"{photos}?links=follow", photos.parent / "pool", size=8, keep_duplicates=True)
    assert (manifest["count"], manifest["rejected"]) == (8, {})
    assert following(str(photos.parent / "pool")) == str(photos.parent / "pool")


def test_a_source_that_is_a_link_itself_is_what_was_named(photos: Path) -> None:
    (photos.parent / "named").symlink_to(photos)
    assert len(read_set(str(photos.parent / "named"), 8).uris) == 5


def test_a_class_folder_that_leads_out_is_a_mistake_not_a_class_less(photos: Path) -> None:
    (photos / "again.png").unlink()
    (photos / "bird").symlink_to(photos.parent / "secret" / "album")
    with pytest.raises(UserError, match=r"'bird' has no image that can be used.*link out of the source"):
        read_set(str(photos), 8, labelled=True)


def test_shards_behind_links_are_left_out_too(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    shards = photos.parent / "shards"
    shards.mkdir()
    archive = shutil.make_archive(str(photos.parent / "b"), "tar", photos / "cat")
    shutil.copy(archive, shards / "a.tar")
    (shards / "b.tar").symlink_to(archive)
    with caplog.at_level(logging.WARNING):
        assert len(open_sources(str(shards))) == 1
    assert "1 link leads out of it" in caplog.text
    assert len(open_sources(following(str(shards)))) == 2


def test_another_word_for_links_is_one_line(photos: Path) -> None:
    with pytest.raises(UserError, match="links=follow, or not"):
        open_sources(f"{photos}?links=all")


def test_the_command_follows_them_only_with_its_option(photos: Path, tmp_path: Path) -> None:
    said = odst("pool", "build", photos, "--out", tmp_path / "a", "--size", 8)
    assert "link out of the source 2" in said.out and "2 links lead out of it" in said.err
    said = odst("pool", "build", photos, "--out", tmp_path / "b", "--size", 8, "--follow-links")
    assert "link out" not in said.out
    assert "other sources" in fails("pool", "build", photos, "--out", tmp_path / "b", "--size", 8)
