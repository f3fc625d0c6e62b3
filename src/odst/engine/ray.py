"""The engine of a Ray cluster (`pip install odst[ray]`): one task an item, at most a window of them at a time.

Tasks write their own files into folders that every node sees and return small notes. The state that `make` builds stays in a
worker from task to task. A worker or node that is lost loses its tasks, and Ray starts them elsewhere. Functions travel by
name, so nodes run the odst that is installed there: the preflight compares versions.
"""

import hashlib
import os
import pickle
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from odst.engine.interface import Failed, Item, attempt
from odst.engine.preflight import Question, installed, look, other_version, question, versions
from odst.errors import UserError

WAIT = 5.0  # seconds for a connection: Ray itself would try for minutes, in silence
RETRIES = 5  # of a task whose worker or node was lost
OWN = {  # before Ray is imported
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_task_oom_retries": "3",  # of a task that is killed for want of memory: Ray's own default is for ever
}
LARGEST = 1 << 30  # bytes of what `make` carries along; a pool in memory is to be packed first


class OnRay:
    """The cluster at `address`, HOST:PORT. `workers` tasks at a time at most; `gpus` of each, a fraction too."""

    alone = False

    def __init__(self, address: str, workers: int | None = None, gpus: float = 0):
        self.address, self.workers, self.gpus = address, workers, gpus
        self.device: str | None = "cuda" if gpus else "cpu"
        self.written: set[Path] = set()  # folders that were checked, and
        self.read: set[Path] = set()
        check_address(address)
        self.ray = _import()
        self._connect()
        self._check_offer()

    def _connect(self) -> None:
        if self.ray.is_initialized():
            there = self.ray.get_runtime_context().gcs_address
            if _plain(there) != _plain(self.address):
                raise UserError(
                    f"--address {self.address}: this process is in the cluster at {there} already. Name that one, or call "
                    "ray.shutdown() first."
                )
            return
        said: list[str] = []
        try:
            with _unheard(said):
                self.ray.init(
                    address=self.address, log_to_driver=False, configure_logging=False, include_dashboard=None
                )
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if any(word in f"{text} {said}".lower() for word in ("unauthenticated", "authentication", "token")):
                raise UserError(
                    f"--address {self.address}: the cluster asks for a token, and yours is missing or wrong. Set RAY_AUTH_MODE=token "
                    "and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as on its nodes."
                ) from None
            reason = " ".join(text.split())[:200]
            raise UserError(
                f"--address {self.address}: no way into this cluster ({reason}). Call odst on one of its nodes: `ray start "
                f"--address {self.address}` makes this machine one, `ray job submit` runs the command on the head."
            ) from None

    def _check_offer(self) -> None:
        offered = self.ray.cluster_resources()
        if offered.get("CPU", 0) < 1:
            raise UserError(
                f"--address {self.address}: the cluster offers no CPU. Start a node with `ray start --num-cpus N`."
            )
        if self.gpus > offered.get("GPU", 0):
            raise UserError(
                f"--gpus-per-worker {self.gpus:g}: the cluster offers {offered.get('GPU', 0):g} GPUs. Ask for fewer, or 0 for CPUs."
            )

    @property
    def window(self) -> int:
        offered = self.ray.cluster_resources()
        slots = int(offered.get("GPU", 0) / self.gpus) if self.gpus else int(offered.get("CPU", 1))
        return max(1, min(self.workers or slots, slots))

    def map(self, make: Callable[[], Callable[[Item], Any]], items: Sequence[Item]) -> Iterator[Any]:
        blob = self._pack(make)
        where = {"num_cpus": 1, "num_gpus": self.gpus, "max_retries": RETRIES, "retry_exceptions": False}
        task = self.ray.remote(**where)(_task)
        name, kept = hashlib.sha256(blob).hexdigest(), self.ray.put(make)
        ahead = self.window if self.workers else 2 * self.window  # one to do, one to come; nodes may join
        here, mine = str(Path.cwd()), installed()
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(
                    task.remote(name, [kept], item, here, mine)
                )  # in a list: fetched only where it is not there yet
                if len(waiting) >= ahead:
                    yield self._note(waiting.popleft())
            while waiting:
                yield self._note(waiting.popleft())
        finally:
            for one in waiting:
                with suppress(Exception):
                    self.ray.cancel(one)

    def _pack(self, make: Any) -> bytes:
        try:
            blob = pickle.dumps(make)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UserError(
                f"--engine ray: what a worker needs cannot be sent ({error}). A network of your own must be importable on every "
                "node: give it as package.module:factory."
            ) from None
        if len(blob) > LARGEST:
            raise UserError(
                f"--engine ray: {len(blob) / 1e9:.1f} GB would travel to every node. Pack the pool (`odst pool build`) into a "
                "folder that all nodes see."
            )
        return blob

    def _note(self, reference: Any) -> Any:
        errors = self.ray.exceptions
        try:
            answer = self.ray.get(reference)
        except errors.OutOfMemoryError:
            raise UserError(
                "--engine ray: a task was killed for want of memory. What is done stays done: lower --workers, or give each "
                "node fewer CPUs (`ray start --num-cpus`), and give the same command again."
            ) from None
        except (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.ObjectLostError,
            errors.LocalRayletDiedError,
        ) as error:
            return Failed(f"its worker died {RETRIES + 1} times ({type(error).__name__})")
        except errors.RayTaskError as error:
            return Failed(" ".join(str(error.cause or error).split())[:200])
        except errors.RayError as error:
            raise UserError(
                f"--engine ray: the cluster at {self.address} is gone ({type(error).__name__}). What is done stays done: start it "
                "again and give the same command."
            ) from None
        if isinstance(answer, _Told):
            raise UserError(str(answer))
        return answer

    def check(self, writes: Iterable[Path], reads: Iterable[Path] = ()) -> None:
        """The preflight: every node has our versions, may write `writes`, and sees `reads`, files of one folder by one of them."""
        new = {folder.absolute() for folder in writes} - self.written
        places = {path if path.is_dir() else path.parent: path for path in (path.absolute() for path in reads)}
        unread = {place: path for place, path in places.items() if place not in self.read}
        if not new and not unread:
            return
        nodes = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        with question(sorted(new), unread.values()) as what:
            asked = [self._ask(node, what) for node in nodes]
            lines = [line for node, one in zip(nodes, asked, strict=True) if (line := self._fault(node, one))]
        if lines:
            raise UserError("; ".join(lines))
        self.written |= new
        self.read |= set(unread)

    def _ask(self, node: dict[str, Any], what: Question) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        return self.ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(look).remote(what)

    def _fault(self, node: dict[str, Any], asked: Any) -> str | None:
        name = f"node {node.get('NodeManagerHostname') or node['NodeManagerAddress']} ({node['NodeManagerAddress']})"
        try:
            found = self.ray.get(asked, timeout=120)
        except self.ray.exceptions.OutOfMemoryError:
            return f"{name}: its memory is full. End something there, or give Ray fewer CPUs (`ray start --num-cpus`)"
        except self.ray.exceptions.RayError as error:
            text = " ".join(str(error).split())
            if "No module named" in text:
                return f"{name}: odst or something it needs is not installed there ({text[text.index('No module named') :][:60]})"
            return f"{name}: it does not answer ({type(error).__name__})"
        mine = versions()
        if other := other_version(found["versions"], mine):
            return f"{name}: {other}"
        if found["blind"]:
            return f"{name}: {found['blind']}. Use a folder that every node sees under one name"
        if found["versions"]["cpu"] != mine["cpu"]:
            import logging

            logging.getLogger("odst").warning(
                "%s: its CPU is %s, here %s: some logits may differ in their last bits from those of one machine.",
                name, found["versions"]["cpu"], mine["cpu"],
            )  # fmt: skip
        return None


class _Told(str):
    """A UserError on its way through Ray, which would wrap an exception."""


_state: dict[str, Callable[[Any], Any]] = {}  # of this worker: the last thing made


def _task(name: str, kept: list[Any], item: Any, folder: str, wanted: dict[str, str]) -> Any:
    """`folder` is where the command was given: what a worker is told may be named from there. `wanted` are the versions that
    are installed there: a node may have come after the preflight."""
    import ray

    with suppress(OSError):  # a node that lacks it is asked for whole paths by whatever needs them
        os.chdir(folder)
    try:
        if name not in _state:
            if other := other_version(installed(), wanted):
                raise UserError(f"node {socket.gethostname()} ({ray.util.get_node_ip_address()}): {other}")
            _state.clear()
            _state[name] = ray.get(kept[0])()
        return attempt(_state[name], item)
    except UserError as error:
        return _Told(str(error))


def check_address(address: str) -> None:
    """A cluster's HOST:PORT where something answers, or one line."""
    if address.startswith("ray://"):
        raise UserError(
            f"--address {address}: Ray Client is not used, files would have to travel through it. Call odst on a node of the "
            "cluster with --address HOST:PORT (6379), or use `ray job submit`."
        )
    host, sign, port = address.rpartition(":")
    if not (sign and host and port.isdigit()):
        raise UserError(f"--address takes HOST:PORT, got {address!r}. `ray start --head` prints it; the port is 6379.")
    try:
        socket.create_connection((host, int(port)), WAIT).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--address {address}: nothing answers there ({error}). Start a cluster with `ray start --head`, or check the address."
        ) from None


def _plain(address: str) -> tuple[str, str]:
    """Host and port as Ray itself would see them: a loopback is the machine."""
    from ray._private.services import resolve_ip_for_localhost

    host, _, port = address.rpartition(":")
    with suppress(OSError):
        host = socket.gethostbyname(host)
    return resolve_ip_for_localhost(host), port


@contextmanager
def _unheard(said: list[str]) -> Iterator[None]:
    """Keep off the terminal what Ray's own threads write there while it connects, and put it into `said`: why a token is
    refused stands nowhere else."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            said.append(file.read(1 << 20).decode("utf-8", "replace"))


def _import() -> Any:
    os.environ |= {name: value for name, value in OWN.items() if name not in os.environ}
    try:
        import ray
        import ray._private.worker
        import ray.exceptions
    except ImportError:
        raise UserError("--engine ray: Ray is not installed. Type `pip install 'odst[ray]'`, on every node.") from None
    ray._private.worker._worker_logs_enabled = False  # else it tells of lost nodes on standard output, amid our results
    return ray
