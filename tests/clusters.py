"""Ray nodes on this machine that see nothing but its loopback; and what they may be asked to do."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odst.files import write_text

# Set before Ray is imported, so import this first: it would put the address of a network card in place of the loopback's
SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
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
    """Work that takes a while and says on which node it was done: for nodes that are killed in the middle of it."""

    folder: Path

    def __call__(self) -> Callable[[int], dict]:
        def part(number: int) -> dict:
            time.sleep(0.5)
            write_text(self.folder / f"{number:05d}.txt", str(number))
            return {"number": number, "raylet": os.getppid()}

        return part


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
