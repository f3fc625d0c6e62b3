"""Ray nodes on this machine that see nothing but its loopback; and what they may be asked to do."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odst.engine.ray import OnRay
from odst.files import write_text

# Set before Ray is imported, so import this first: it would put the address of a network card in place of the loopback's
SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15 by itself: whatever else runs would come first
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(":")]),
}
os.environ |= SETTINGS
NODE: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20}


def head(**changes: Any) -> Any:
    """A cluster of one node; `add_node(**NODE)` makes it two."""
    from ray.cluster_utils import Cluster

    return Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False, **changes})


@dataclass(frozen=True)
class Pacing:
    """Work that takes a while."""

    folder: Path

    def __call__(self) -> Callable[[int], dict]:
        def part(number: int) -> dict:
            time.sleep(0.5)
            write_text(self.folder / f"{number:05d}.txt", str(number))
            return {"number": number}

        return part


@dataclass(frozen=True)
class Paced:
    """A stage's own `make`, whose parts are begun when two nodes are up, take a while, and leave in `makers` who made them: so
    that neither the load of the machine nor the start of a worker decides which node makes a part. When both have made one,
    the worker of `doomed` kills its raylet and itself while it writes the file of the next: what it was at is lost for sure,
    which it is not where the raylet alone is killed: its worker goes on to the end of a part."""

    make: Callable[[], Callable[[Any], Any]]
    makers: Path
    doomed: int

    def __call__(self) -> Callable[[Any], Any]:
        work, raylet = self.make(), os.getppid()
        (self.makers / f"up-{raylet}").touch()
        while len(list(self.makers.glob("up-*"))) < 2:
            time.sleep(0.02)

        def part(number: Any) -> Any:
            time.sleep(0.3)
            if raylet == self.doomed and len(made_by(self.makers)) == 2:
                os.fsync = self.die
            note = work(number)
            (self.makers / f"made-{number}-{raylet}").touch()
            return note

        return part

    def die(self, handle: int) -> None:
        (self.makers / "lost").symlink_to(Path(f"/proc/self/fd/{handle}").readlink())
        for pid in (self.doomed, os.getpid()):
            os.kill(pid, signal.SIGKILL)


def made_by(makers: Path, number: Any = "*") -> set[int]:
    """The raylets whose workers have made a part, or any."""
    return {int(file.name.rpartition("-")[2]) for file in makers.glob(f"made-{number}-*")}


class Killing(OnRay):
    """An engine of two nodes, of which one is killed when both have made parts of the stage."""

    def __init__(self, address: str, makers: Path, doomed: int):
        super().__init__(address)
        self.makers, self.doomed = makers, doomed

    def map(self, make: Callable[[], Callable[[Any], Any]], items: Any) -> Iterator[Any]:
        return super().map(Paced(make, self.makers, self.doomed), items)


class Unasked(OnRay):
    """An engine whose nodes come after the preflight."""

    def check(self, writes: Iterable[Path], reads: Iterable[Path] = ()) -> None:
        pass


@dataclass(frozen=True)
class Failing:
    """Work whose third part is broken."""

    tries: Path

    def __call__(self) -> Callable[[int], dict]:
        def part(number: int) -> dict:
            if number == 2:
                with self.tries.open("a") as file:
                    file.write("x")
                raise ValueError("two is not well")
            return {"number": number}

        return part


if __name__ == "__main__":  # in the environment of whoever started it, until its input ends
    made = head()
    print(made.address, flush=True)
    input()
    made.shutdown()
