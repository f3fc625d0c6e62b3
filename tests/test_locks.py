"""One writer at a time: real processes, one folder."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from odst import holders, locks
from odst.errors import UserError
from odst.holders import Holder
from odst.locks import FILE, held_parts, lock
from processes import command, environment

HOLD = """
import sys
from odst.locks import lock
with lock(sys.argv[1], "odst run", part=sys.argv[2] if len(sys.argv) > 2 else None):
    print("held", flush=True)
    sys.stdin.readline()
"""
TRY = """
import sys
from odst.errors import UserError
from odst.locks import lock
try:
    with lock(sys.argv[1], "odst run", part=sys.argv[2] if len(sys.argv) > 2 else None):
        print("held")
except UserError as error:
    sys.exit(f"{error}")
"""
RUSH = """
import os, sys, time
from pathlib import Path
from odst.errors import UserError
from odst.locks import lock
folder = Path(sys.argv[1])
kept = folder / f"kept-{os.getpid()}"
while not (folder / "go").exists():
    time.sleep(0.0005)
wins = 0
while wins < 8:
    try:
        with lock(folder, "rush"):
            handle = os.open(folder / "inside", os.O_CREAT | os.O_EXCL | os.O_WRONLY)  # raises if anybody else is inside
            wins += 1
            os.close(handle)
            os.unlink(folder / "inside")
            if wins % 3 == 2:  # leave as a killed process would: the file stays, and its pid is gone for the others
                (folder / ".odst-lock").rename(kept)
        if kept.exists():
            kept.write_text(kept.read_text().replace(f'"pid": {os.getpid()}', '"pid": 4194000'))
            try:
                os.link(kept, folder / ".odst-lock")
            except FileExistsError:
                pass
            kept.unlink()
    except UserError:
        time.sleep(0.001)
print(wins)
"""


def python(script: str, *words: object, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), **options,
    )  # fmt: skip


def holding(folder: Path, *part: str) -> subprocess.Popen[str]:
    process = python(HOLD, folder, *part)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def attempt(folder: Path, *part: str) -> tuple[int, str]:
    process = python(TRY, folder, *part)
    out, err = process.communicate()
    return process.returncode, out + err


def release(process: subprocess.Popen[str]) -> None:
    process.communicate("\n")
    assert process.returncode == 0


def write(folder: Path, **changes: object) -> Path:
    """A lock as somebody else would have left it."""
    values = {"pid": 4_194_000, "host": "elsewhere", "machine": "theirs", "born": "1", "since": time.time() - 60}
    values |= {"token": "0" * 16, "doing": "odst run", "part": None} | changes
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(json.dumps(values))
    return folder / FILE


def test_a_second_process_is_told_at_once_who_writes_and_since_when(tmp_path: Path) -> None:
    first = holding(tmp_path)
    begin = time.monotonic()
    code, said = attempt(tmp_path)
    assert code == 1 and time.monotonic() - begin < 5
    assert f"it is being written by process {first.pid} on {socket.gethostname()} since " in said
    assert f"{time.localtime().tm_hour:02d}:" in said or f"{time.localtime(time.time() - 60).tm_hour:02d}:" in said
    release(first)
    assert attempt(tmp_path) == (0, "held\n")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_holds_nothing_not_even_before_it_is_buried(tmp_path: Path) -> None:
    first = holding(tmp_path)
    first.send_signal(signal.SIGKILL)
    time.sleep(0.1)  # dead, and a zombie until somebody waits for it
    assert (tmp_path / FILE).exists()
    assert attempt(tmp_path) == (0, "held\n")
    first.communicate()


def test_a_pid_that_was_given_anew_is_not_the_holder(tmp_path: Path) -> None:
    with lock(tmp_path, "odst run"):
        values = json.loads((tmp_path / FILE).read_text())
    write(tmp_path, **(values | {"born": str(int(values["born"]) - 1), "token": "another"}))
    with lock(tmp_path, "odst run"):
        assert json.loads((tmp_path / FILE).read_text())["token"] not in ("another", values["token"])


def test_another_machine_holds_it_as_long_as_its_heart_beats(tmp_path: Path) -> None:
    file = write(tmp_path)
    with (
        pytest.raises(UserError, match=r"process 4194000 on elsewhere .* free a minute after it ended"),
        lock(tmp_path, "x"),
    ):
        pass
    os.utime(file, (time.time() - 50,) * 2)
    with pytest.raises(UserError, match="elsewhere"), lock(tmp_path, "x"):
        pass
    os.utime(file, (time.time() - 61,) * 2)
    with lock(tmp_path, "x"):
        assert json.loads(file.read_text())["pid"] == os.getpid()


def test_the_heart_beats_while_the_lock_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT", 0.02)
    with lock(tmp_path, "x"):
        os.utime(tmp_path / FILE, (0, 0))
        deadline = time.monotonic() + 10
        while (tmp_path / FILE).stat().st_mtime < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert time.time() - (tmp_path / FILE).stat().st_mtime < 5


def test_a_process_whose_lock_was_taken_over_while_it_slept_stops(tmp_path: Path) -> None:
    script = f"""
import time
from pathlib import Path
from odst import holders, locks
locks.BEAT = 0.02
with locks.lock({str(tmp_path)!r}, "x"):
    (Path({str(tmp_path)!r}) / locks.FILE).unlink()
    with locks.lock({str(tmp_path)!r}, "y"):
        time.sleep(20)
"""
    process = python(script)
    _, err = process.communicate(timeout=15)
    assert process.returncode == -signal.SIGTERM
    assert "is its writer no more" in err


def test_of_processes_that_take_over_at_once_one_at_a_time_is_inside(tmp_path: Path) -> None:
    write(tmp_path, host=socket.gethostname(), machine=holders.machine())
    rushing = [python(RUSH, tmp_path) for _ in range(4)]
    time.sleep(0.5)
    (tmp_path / "go").touch()
    answers = [one.communicate(timeout=120) for one in rushing]
    assert [one.returncode for one in rushing] == [0] * 4, answers
    assert [out for out, _ in answers] == ["8\n"] * 4
    left = {file.name for file in tmp_path.iterdir()} - {"go", FILE}
    assert left == set()


def test_a_process_that_the_holder_started_is_let_through_and_takes_nothing_away(tmp_path: Path) -> None:
    with lock(tmp_path, "odst run"):
        assert attempt(tmp_path) == (0, "held\n")
        with lock(tmp_path, "odst pool build"):
            pass
        assert (tmp_path / FILE).exists()
        worker_environment = os.environ.get(locks.TOKENS, "")
        assert worker_environment
    assert os.environ.get(locks.TOKENS, "") == ""
    first = holding(tmp_path)
    assert attempt(tmp_path)[0] == 1
    release(first)


def test_parts_are_held_side_by_side_and_the_whole_names_them(tmp_path: Path) -> None:
    one, three = holding(tmp_path, "label 1/3"), holding(tmp_path, "label 3/3")
    assert attempt(tmp_path, "label 2/3") == (0, "held\n")
    code, said = attempt(tmp_path, "label 3/3")
    assert code == 1 and f"process {three.pid}" in said
    assert [holder.part for holder in held_parts(tmp_path)] == ["label 1/3", "label 3/3"]
    code, said = attempt(tmp_path)
    assert code == 1 and "still being written: label 1/3 by process" in said and "label 3/3 by process" in said
    one.send_signal(signal.SIGKILL)
    one.communicate()
    assert [holder.part for holder in held_parts(tmp_path)] == ["label 3/3"]
    release(three)
    whole = holding(tmp_path)
    code, said = attempt(tmp_path, "label 2/3")
    assert code == 1 and f"process {whole.pid}" in said
    release(whole)


def test_a_folder_is_made_for_a_writer_and_goes_again_if_nothing_came_into_it(tmp_path: Path) -> None:
    with lock(tmp_path / "a" / "b", "x"):
        assert (tmp_path / "a" / "b" / FILE).exists()
    assert list(tmp_path.iterdir()) == []
    with lock(tmp_path / "a" / "b", "x"):
        (tmp_path / "a" / "b" / "file").touch()
    assert [file.name for file in (tmp_path / "a").rglob("*")] == ["b", "file"]


def test_a_damaged_lock_file_frees_itself_after_a_minute(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(UserError, match="being written"), lock(tmp_path, "x"):
        pass
    os.utime(tmp_path / FILE, (time.time() - 61,) * 2)
    with lock(tmp_path, "x"):
        pass


def test_an_exception_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), lock(tmp_path, "x"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_holder_says_its_day_where_that_is_not_today() -> None:
    long_ago = Holder(1, "host", "", "", 0.0, "", "odst run")
    assert "since 19" in str(long_ago)


# the commands ----------------------------------------------------------------------------------------------------------------

RUN = (
    "run",
    "digits",
    "--set",
    "training.phases=[{steps=400, lr=0.1}]",
    "--set",
    "method.ratio=[5]",
    "--set",
    "method.alpha=0.5",
)


def wait_for(there, process: subprocess.Popen[str], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def start(*words: object, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*map(str, words)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        **options,
    )


def refused(*words: object, says: str) -> None:
    second = start(*words)
    _, err = second.communicate()
    lines = [line for line in err.splitlines() if line.startswith("odst: ")]
    assert second.returncode == 2 and "Traceback" not in err, err
    assert len(lines) == 1 and says in lines[0], err


@pytest.mark.slow
def test_two_runs_in_one_folder_do_not_meet_and_the_first_is_as_if_alone(tmp_path: Path) -> None:
    first = start(*RUN, "--out", tmp_path / "run")
    wait_for((tmp_path / "run" / FILE).exists, first)
    refused(*RUN, "--out", tmp_path / "run", says=f"is being written by process {first.pid}")
    refused(*RUN, "--out", tmp_path / "run", "--fresh", says=f"is being written by process {first.pid}")
    _, err = first.communicate()
    assert first.returncode == 0, err
    assert not (tmp_path / "run" / FILE).exists() and not list(tmp_path.glob("run.old*"))
    done = start("run", tmp_path / "run", "--fresh")
    done.communicate()
    assert done.returncode == 0 and not (tmp_path / "run.old-1" / FILE).exists()


@pytest.mark.parametrize("words", [("pool", "build", "{src}", "--out", "{out}"), ("pool", "join", "{pool}", "{pool}", "--out", "{out}"),
    ("dedup", "{pool}", "--against", "{src}", "--lpips", "none", "--out", "{out}"), ("init", "{out}", "--labelled", "{src}", "--pool", "{src}")])  # fmt: skip
def test_what_writes_a_pool_an_exclusion_list_or_a_project_is_alone_in_it(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    from pictures import folder_of

    src, pool, out = folder_of(tmp_path / "src", 12, ("a", "b")), tmp_path / "pool", tmp_path / "out"
    subprocess.run(
        command("pool", "build", str(src), "--out", str(pool)), check=True, env=environment(), capture_output=True
    )
    first = holding(out)
    refused(
        *(word.format(src=src, pool=pool, out=out) for word in words), says=f"is being written by process {first.pid}"
    )
    assert [file.name for file in out.iterdir()] == [FILE]
    release(first)


@pytest.mark.parametrize(
    "changes", [{"since": "a"}, {"since": 1e300}, {"pid": "x"}, {"host": 5}, {"doing": None}, {"part": 3}]
)
def test_a_lock_file_that_no_odst_wrote_is_somebodys(tmp_path: Path, changes: dict) -> None:
    good = {"pid": 1, "host": "h", "machine": "m", "born": "", "since": 0.0, "token": "t", "doing": "d", "part": None}
    (tmp_path / FILE).write_text(json.dumps(good | changes))
    with (
        pytest.raises(UserError, match="is being written by process 0 on an unknown machine"),
        lock(tmp_path, "a test"),
    ):
        pass
