"""Where per-shard work runs: processes, shares, and what a person says of it."""

import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from odst.engine.choice import choose_engine, choose_share
from odst.engine.interface import Failed, Share, ShareDone, running_on
from odst.engine.local import Local
from odst.engine.parts import begin, complete, note_file, read_notes
from odst.engine.preflight import look, question
from odst.engine.ray import check_address
from odst.engine.status import spans, stages
from odst.errors import UserError
from odst.files import write_json


def squaring():
    return square


def square(number: int) -> dict:
    if number == 3 and os.environ.get("ODST_TEST_FAULT"):
        raise ValueError("three is not well")
    return {"square": number * number}


def refusing():
    return refuse


def refuse(number: int) -> dict:
    raise UserError(f"{number}: no. Take another.")


def killing():
    return kill


def kill(number: int) -> dict:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": number}


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_notes_come_in_the_order_of_their_items(workers):
    assert [note["square"] for note in Local(workers).map(squaring, range(6))] == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_users_mistake_comes_through_as_itself(workers):
    with pytest.raises(UserError, match=r"0: no\. Take another\."):
        list(Local(workers).map(refusing, range(4)))


def test_an_item_that_fails_three_times_is_named_and_the_others_are_kept(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ODST_TEST_FAULT", "1")
    assert list(Local(1).map(squaring, [3])) == [Failed("ValueError: three is not well")]
    with pytest.raises(
        UserError, match=r"part 3 failed three times \(ValueError: three is not well\)\. The others are kept"
    ):
        complete(tmp_path, {}, [1] * 5, squaring, name=None)
    assert sorted(read_notes(tmp_path)) == [0, 1, 2, 4]
    monkeypatch.delenv("ODST_TEST_FAULT")
    assert [note["square"] for note in complete(tmp_path, {}, [1] * 5, squaring, name=None)] == [0, 1, 4, 9, 16]


def test_a_process_that_is_killed_for_want_of_memory_says_what_to_lower_and_what_is_done_stays_done(tmp_path: Path):
    with (
        running_on(Local(2)),
        pytest.raises(
            UserError,
            match=r"a process at work was ended by SIGKILL, most likely for want of memory: lower --workers\. What is done stays",
        ),
    ):
        complete(tmp_path, {}, [1] * 6, killing, name=None)
    assert {0} <= set(read_notes(tmp_path)) <= {0, 1, 3, 4, 5}  # how far the other process came is its own


def test_a_share_does_its_own_parts_and_status_names_the_others(tmp_path: Path):
    with pytest.raises(ShareDone, match=r"share 1/3 is done, 4 of 6 parts are left"), running_on(Local(1), Share(1, 3)):
        complete(tmp_path / "stage", {}, [1] * 6, squaring, name="square")
    assert sorted(read_notes(tmp_path / "stage")) == [1, 4]
    (found,) = stages(tmp_path)
    assert (found.stage, found.parts, found.done, found.shares) == ("square", 6, (1, 4), 3)
    assert "shares with parts left: 0/3, 2/3" in str(found)
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


def test_calls_that_count_their_shares_differently_do_not_mix(tmp_path: Path):
    with pytest.raises(ShareDone), running_on(Local(1), Share(0, 3)):
        complete(tmp_path, {}, [1] * 6, squaring, name="square")
    with pytest.raises(UserError, match="the first call here was one of 3"), running_on(Local(1), Share(0, 4)):
        complete(tmp_path, {}, [1] * 6, squaring, name="square")
    assert sorted(read_notes(tmp_path)) == [0, 3]
    assert len(complete(tmp_path, {}, [1] * 6, squaring, name="square")) == 6  # without a share: closes it


def test_of_first_calls_at_one_moment_one_number_of_shares_wins(tmp_path: Path):
    together = Barrier(4)

    def call(folder: Path, n: int) -> bool:
        with running_on(None, Share(0, n)):
            together.wait()
            try:
                begin(folder, {}, 6, "square", "images", "")
            except UserError:
                return False
            return True

    with ThreadPoolExecutor(4) as threads:
        for i in range(50):
            write_json(tmp_path / str(i) / "about.json", {"about": {"parts": 6}})
            passed = threads.map(call, [tmp_path / str(i)] * 4, [2, 3, 4, 5])
            assert sum(passed) == 1
            assert sorted(file.name for file in (tmp_path / str(i)).iterdir()) == ["about.json", "share.json"]


def test_parts_made_from_something_else_are_refused(tmp_path: Path):
    complete(tmp_path, {"model": "a"}, [1], squaring, name=None)
    with pytest.raises(UserError, match=r"made from another model\. Delete it\."):
        complete(tmp_path, {"model": "b"}, [1], squaring, name=None, stale="Delete it.")


def test_without_the_extra_ray_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UserError, match=r"Ray is not installed\. Type `pip install 'odst\[ray\]'`, on every node"):
            choose_engine("ray", address, None, 0, {})


def test_a_folder_that_a_node_does_not_see_is_named_and_a_visible_one_is_left_clean(tmp_path: Path):
    with question([tmp_path], []) as asked:
        assert look(asked)["blind"] == ""
        assert list(tmp_path.iterdir()) == asked.tokens
        assert look(asked._replace(token="another"))["blind"] == f"it does not see {tmp_path}"
        gone = asked._replace(tokens=[tmp_path / "gone" / "token"])
        assert look(gone)["blind"] == f"it does not see {tmp_path / 'gone'}"
    assert list(tmp_path.iterdir()) == []


def test_what_is_only_read_is_compared_by_a_file_and_nothing_is_written(tmp_path: Path):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    file = tmp_path / "photos" / "cats" / "a.png"
    file.write_bytes(b"here")
    with question([], [tmp_path / "photos", tmp_path / "empty", tmp_path / "gone"]) as asked:
        assert [one[:2] for one in asked.heads] == [(tmp_path / "photos", file)]
        assert look(asked)["blind"] == ""
        assert sorted(tmp_path.rglob("*")) == [tmp_path / name for name in ("empty", "photos", "photos/cats")] + [file]
        file.write_bytes(b"another on that node")
        assert look(asked)["blind"] == f"it does not see {tmp_path / 'photos'}"


def test_a_folder_where_nothing_can_be_written_is_one_line_and_the_others_are_left_clean(tmp_path: Path):
    (tmp_path / "a").mkdir()
    refusal = pytest.raises(UserError, match=r"b: nothing can be written there \(No such file")
    with refusal, question([tmp_path / "a", tmp_path / "b"], []):
        pass
    assert list((tmp_path / "a").iterdir()) == []


def test_a_damaged_note_is_named(tmp_path: Path):
    complete(tmp_path, {}, [1] * 2, squaring, name=None)
    note_file(tmp_path, 1).write_text("{")
    with pytest.raises(UserError, match=r"00001\.json: this note is damaged\. Delete it"):
        complete(tmp_path, {}, [1] * 2, squaring, name=None)


def test_shares_are_read_from_the_text_or_from_what_started_us():
    assert choose_share("2/8") == Share(2, 8)
    array = {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_COUNT": "8", "SLURM_ARRAY_TASK_MIN": "1"}
    assert choose_share("slurm", array) == Share(4, 8)
    assert choose_share("torchrun", {"RANK": "1", "WORLD_SIZE": "2"}) == Share(1, 2)
    for text, says in [
        ("3/3", "shares count from 0, so the last one is 2/3"),
        ("0/0", "shares count from 0"),
        ("x", "--shard takes i/n"),
        ("slurm", "SLURM_ARRAY_TASK_ID is not set"),
    ]:
        with pytest.raises(UserError, match=says):
            choose_share(text, {})


def test_a_wrong_engine_or_address_is_one_line():
    for arguments, says in [
        (("spark", None, None, 0), "--engine: 'spark' is none of local, ray"),
        (("ray", None, None, 0), "which cluster"),
        (("local", None, None, 1), "--gpus-per-worker: it is for --engine ray"),
        ((None, "ray://somewhere:10001", None, 0), "Ray Client is not used"),
        (("ray", "somewhere", None, 0), "--address takes HOST:PORT"),
        (("ray", "127.0.0.1:1", None, 0), "nothing answers there"),
    ]:
        with pytest.raises(UserError, match=says):
            choose_engine(*arguments, {})
    assert isinstance(choose_engine(None, None, 3, 0, {}), Local)
    with pytest.raises(UserError, match=r"127\.0\.0\.1:1: nothing answers"):
        choose_engine(None, None, None, 0, {"ODST_ENGINE": "ray:127.0.0.1:1"})
    with pytest.raises(UserError, match="nothing answers"):
        check_address("127.0.0.1:99999")


def test_a_part_that_is_tried_again_is_read_from_its_beginning(tmp_path: Path) -> None:
    """The walk of the first try has moved on; the second must not take it for its own."""
    import numpy as np

    from odst.data.part_files import Piece, reading
    from odst.data.sources import open_sources

    np.save(tmp_path / "x.npy", np.arange(40 * 12, dtype=np.uint8).reshape(40, 2, 2, 3))
    parts = reading(open_sources(str(tmp_path / "x.npy")), 5)

    def first(piece: Piece, most: int) -> list[list[str]]:
        found = []
        walk = parts(piece)
        for _ in range(most):
            found.append([item.uri for item in next(walk)])
        return found

    whole = [[item.uri for item in part] for part in parts(Piece(0, 0, 10))]
    assert len(whole) == 2
    broken = first(Piece(0, 10, 10), 1)  # a fault after one of two portions
    again = [[item.uri for item in part] for part in parts(Piece(0, 10, 10))]
    assert again[0] == broken[0] and len(again) == 2
    assert [uri.rpartition("=")[2] for portion in again for uri in portion] == [str(n) for n in range(10, 20)]
