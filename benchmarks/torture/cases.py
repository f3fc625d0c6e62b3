"""The parts of the table. Each yields a verdict per case: survived, wrong, traceback, or stuck."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.torture.calls import Call, Ended, call, call_anew
from benchmarks.torture.configs import configs
from benchmarks.torture.scenes import (
    CONFIG,
    PREPARATION,
    SCENES,
    SIDE,
    Scene,
    fingerprint,
    make_world,
    writing,
)
from benchmarks.torture.shim import Shim

# of a finished run or pool: what they hold may differ without anything being wrong
NOTES = {"log.txt", "timings.jsonl", ".checked.json"}
READERS = ("report", "review", "audit", "predict", "evaluate", "compare", "export", "selection")
POOL_READERS = ("pool info", "pool verify", "dedup", "pool embed", "pool join")


@dataclass(frozen=True)
class Verdict:
    case: str
    outcome: str  # survived, wrong, traceback or stuck
    detail: str = ""


class World:
    """A folder that every case begins with anew, always in the same place: pages name it."""

    def __init__(self, place: Path, seed: int):
        self.seed, self.kept, self.folder = seed, place / "kept", place / "case"
        make_world(self.kept, seed)
        self.kept.rename(self.folder)
        for words in PREPARATION:
            ended = call(list(words), self.folder)
            if ended.code:
                raise SystemExit(f"{' '.join(words)}: exit code {ended.code}\n{ended.err}")
        self.folder.rename(self.kept)
        self.wanted: dict[str, tuple[dict[str, str], Ended]] = {}

    def anew(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        subprocess.run(["cp", "-a", str(self.kept), str(self.folder)], check=True)  # with times: pools know them
        return self.folder

    def undisturbed(self, name: str) -> tuple[dict[str, str], Ended]:
        """What a scene leaves when nothing happens, and how many file operations it takes."""
        if name not in self.wanted:
            scene = SCENES[name]
            ended = call(list(scene.words), self.anew(), Shim("count"))
            if ended.code:
                raise SystemExit(f"{name}: exit code {ended.code} undisturbed\n{ended.err}")
            self.wanted[name] = fingerprint(self.folder, scene), ended
        return self.wanted[name]

    def again(self, name: str, scene: Scene, what: str) -> Verdict:
        """The same command once more, as a user would: it must come to what an undisturbed one leaves."""
        ended = call(list(scene.words), self.folder)
        if ended.crashed:
            return Verdict(what, "traceback", f"again: {ended.crashed}")
        verdict = self.compare(name, scene, what)
        if ended.code and verdict.outcome != "survived":  # what was done when the kill came is not done twice
            return Verdict(what, "stuck", ended.err.strip().splitlines()[-1])
        return verdict

    def compare(self, name: str, scene: Scene, what: str) -> Verdict:
        wanted, found = self.undisturbed(name)[0], fingerprint(self.folder, scene)
        if found != wanted:
            differ = sorted(file for file in wanted.keys() | found.keys() if wanted.get(file) != found.get(file))
            return Verdict(what, "wrong", f"differ: {', '.join(differ[:4])}")
        return Verdict(what, "survived")


def spread(rng: np.random.Generator, total: int, most: int | None) -> list[int]:
    """The numbers 1 to `total`, or `most` of them: the first, the last and a draw between."""
    if most is None or total <= most:
        return list(range(1, total + 1))
    inner = rng.choice(np.arange(2, total), max(0, most - 2), replace=False) if total > 2 else []
    return sorted({1, total, *map(int, inner)})


def kills(world: World, rng: np.random.Generator, most: int | None, anew: int) -> Iterator[Verdict]:
    """SIGKILL at a file operation, then the same command: everything is as if nothing had been. `anew` cases of each command
    in a Python that is started for it."""
    for name, scene in writing():
        total = world.undisturbed(name)[1].count
        for i, n in enumerate(spread(rng, total, most)):
            what = f"{name}: killed at {n} of {total}"
            world.anew()
            if i < anew:
                ended = call_anew(list(scene.words), world.folder, "kill", n)
            else:
                ended = call(list(scene.words), world.folder, Shim("kill", n))
            if ended.code not in (-9, 0):  # 0: it took fewer operations this time
                yield Verdict(what, "traceback", ended.crashed or f"exit code {ended.code}")
                continue
            yield world.again(name, scene, what)


def full_disks(world: World, rng: np.random.Generator, most: int | None) -> Iterator[Verdict]:
    """From the n-th operation on the disk is full: one line. With space again the same command comes to the same end."""
    for name, scene in writing():
        world.anew()
        total = call(list(scene.words), world.folder, Shim("full")).count
        for n in spread(rng, total, most):
            what = f"{name}: disk full at {n} of {total}"
            world.anew()
            ended = call(list(scene.words), world.folder, Shim("full", n))
            if ended.crashed:
                yield Verdict(what, "traceback", ended.crashed)
            elif ended.code == 0:
                yield world.compare(name, scene, what)
            else:
                yield world.again(name, scene, what)


def small_disks(world: World, rng: np.random.Generator, most: int, place: Path) -> Iterator[Verdict]:
    """The same on a real file system of a few kilobytes more than the world takes, where one may be mounted."""
    place.mkdir(exist_ok=True)
    for name, scene in writing():
        for _ in range(most):
            room = int(rng.integers(16, 400)) * 1024
            used = sum(-(-file.stat().st_size // 4096) * 4096 + 4096 for file in world.kept.rglob("*"))
            options = f"size={used + room},nr_inodes=0"
            if subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "odst", str(place)], capture_output=True
            ).returncode:
                return
            try:
                subprocess.run(["cp", "-a", str(world.kept), str(place / "case")], check=True, capture_output=True)
                ended = call(list(scene.words), place / "case")
                what = f"{name}: {room // 1024} KiB left"
                if ended.crashed or ended.code == 0:
                    yield Verdict(what, "traceback" if ended.crashed else "survived", ended.crashed)
                    continue
                subprocess.run(["mount", "-o", "remount,size=1g", str(place)], check=True, capture_output=True)
                again = call(list(scene.words), place / "case")
                fault = again.crashed or ("" if again.code == 0 else again.err.strip().splitlines()[-1])
                yield Verdict(what, "survived" if not fault else "traceback" if again.crashed else "stuck", fault)
            finally:
                subprocess.run(["umount", "-l", str(place)], capture_output=True)


def pairs(world: World, rng: np.random.Generator, each: int) -> Iterator[Verdict]:
    """Two processes with one command in one folder, the second at any moment: one is refused, or both come to the same."""
    for name, scene in writing():
        world.anew()
        first = Call(list(scene.words), world.folder)
        first.wait()
        took = time.monotonic() - first.begin
        for _ in range(each):
            delay = float(rng.uniform(0, took)) * float(rng.integers(0, 2) or 0.1)
            what = f"{name}: a second one after {delay:.2f} s"
            world.anew()
            one = Call(list(scene.words), world.folder)
            time.sleep(delay)
            two = Call(list(scene.words), world.folder)
            ends = [one.wait(), two.wait()]
            crashed = [end.crashed for end in ends if end.crashed]
            if crashed:
                yield Verdict(what, "traceback", crashed[0])
            elif all(end.code for end in ends):
                yield world.again(name, scene, what)
            else:
                yield world.compare(name, scene, what)


# damage ----------------------------------------------------------------------------------------------------------------------


def damage(file: Path, how: str, rng: np.random.Generator, others: list[Path]) -> bool:
    """Whether it could be done."""
    raw = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "cut" and raw:
        file.write_bytes(raw[: int(rng.integers(len(raw)))])
    elif how == "one byte" and raw:
        at = int(rng.integers(len(raw)))
        file.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :])
    elif how == "swapped" and (fitting := [one for one in others if one.read_bytes() != raw]):
        file.write_bytes(fitting[int(rng.integers(len(fitting)))].read_bytes())
    else:
        return False
    return True


def damages(world: World, rng: np.random.Generator, most: int | None) -> Iterator[Verdict]:
    """Every file of a finished run, and of a packed pool, damaged in every way, and then every command that reads it: one
    line, or what it would have said of the whole one, or a word of warning."""
    for folder, readers in (("done", (*READERS, "run")), ("packed", POOL_READERS)):
        files = sorted(file.relative_to(world.kept) for file in (world.kept / folder).rglob("*") if file.is_file())
        ways = [(file, how) for file in files for how in ("one byte", "cut", "empty", "missing", "swapped")]
        cases = [(*way, name) for way in ways for name in readers]
        for i in (
            range(len(cases)) if most is None else sorted(rng.choice(len(cases), min(most, len(cases)), replace=False))
        ):
            file, how, name = cases[i]
            scene = SCENES[name] if name != "run" else Scene(("run", "done"), ("done",))
            world.anew()
            kin = [one for one in world.folder.rglob(file.name) if one != world.folder / file]
            if not damage(world.folder / file, how, rng, kin):
                continue
            yield _judge(world, name, scene, file, f"{name}: {file} {how}")


def _judge(world: World, name: str, scene: Scene, file: Path, what: str) -> Verdict:
    if name == "run":
        wanted = fingerprint(world.kept, scene)
        whole = Ended(0, "", "")
    else:
        wanted, whole = world.undisturbed(name)
    harmed = fingerprint(world.folder, scene)
    ended = call(list(scene.words), world.folder)
    if ended.crashed:
        return Verdict(what, "traceback", ended.crashed)
    if ended.code == 2 or file.name in NOTES:
        return Verdict(what, "survived")
    found = fingerprint(world.folder, scene)
    # a file that the command does not read stays as damaged as it was
    differ = [one for one in wanted if wanted[one] != found.get(one) and found.get(one) != harmed.get(one)]
    if str(file) in wanted and found.get(str(file)) not in (wanted[str(file)], harmed.get(str(file))):
        differ.append(str(file))
    said = set(_words(ended.err)) - set(_words(whole.err))
    if (differ or (name != "run" and not scene.leaves and ended.out != whole.out)) and not said:
        return Verdict(what, "wrong", f"differ: {', '.join(differ[:3]) or 'what it says'}")
    return Verdict(what, "survived")


def _words(text: str) -> list[str]:
    """Lines of warning: stages with their times are none."""
    return [line for line in text.splitlines() if line.startswith(("WARNING", "ERROR", "odst:"))]


# what nobody could use -------------------------------------------------------------------------------------------------------


def malformed(world: World, place: Path, seed: int, n_sources: int, n_configs: int) -> Iterator[Verdict]:
    """Sources and configs: one line, or read with what is bad in them rejected. In a process of their own: some readers are
    not Python."""
    from benchmarks.malformed import sources
    from benchmarks.malformed.trial import faults

    (place / "sources").mkdir(parents=True)
    for what, spec in sources(place / "sources", seed, n_sources):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            os.write(write, "; ".join(faults(spec, place / "pool")).encode()[:60000])
            os._exit(0)
        os.close(write)
        with open(read, encoding="utf-8") as pipe:
            found = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        shutil.rmtree(place / "pool", ignore_errors=True)
        found = found or (f"signal {-code}" if code < 0 else "")
        yield Verdict(f"source: {what[:160]}", "traceback" if found else "survived", found)
    whole = CONFIG.format(pool="pool.npz", side=SIDE)
    world.anew()
    for what, raw in configs(whole, seed, n_configs):
        (world.folder / "odst.toml").write_bytes(raw)
        ended = call(["run", "odst.toml", "--dry-run"], world.folder)
        yield Verdict(f"config: {what[:160]}", "traceback" if ended.crashed else "survived", ended.crashed)
