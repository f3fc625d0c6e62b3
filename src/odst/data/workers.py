"""Items -> arrays, in order, decoded on any number of processes. The result does not depend on how many."""

import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from odst.data.decoding import Fit, Rejected, decode, fit_array
from odst.data.images import content_hash
from odst.data.items import Part, Source
from odst.errors import UserError

PART_BYTES = 4 << 20  # of decoded rows in one part: what a process holds at a time
WORTH_A_PROCESS = 2000  # pictures: to start a process takes about as long as to decode half of them


class Record(NamedTuple):
    """One row that was read."""

    place: int  # the item's number inside its part
    uri: str
    label: str | None
    hash: str
    width: int
    height: int


class Refusal(NamedTuple):
    """One item that was not."""

    place: int
    uri: str
    reason: str
    detail: str
    label: str | None = None


class Batch(NamedTuple):
    items: int  # how many items of the source this accounts for
    rows: np.ndarray  # (len(records), ...)
    records: list[Record]
    rejected: list[Refusal]


@dataclass(frozen=True)
class Decoder:
    """What turns one part into a batch: pictures to uint8 (size, size, 3), features to rows of one type and width."""

    size: int
    fit: Fit
    features: np.dtype | None = None
    width: int | None = None

    @property
    def row(self) -> tuple[int, ...]:
        return (self.size, self.size, 3) if self.width is None else (self.width,)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8) if self.features is None else self.features

    @property
    def part_length(self) -> int:
        row_bytes = int(np.prod(self.row)) * self.dtype.itemsize
        return int(np.clip(PART_BYTES // row_bytes, 8, 256))

    def __call__(self, part: Part) -> Batch:
        rows = np.empty((len(part), *self.row), self.dtype)
        records: list[Record] = []
        rejected: list[Refusal] = []
        for place, item in enumerate(part):
            try:
                row, width, height = self._read(item.read())
            except Rejected as error:
                rejected.append(Refusal(place, item.uri, error.reason, error.detail, item.label))
                continue
            rows[len(records)] = row
            hash = content_hash(rows[len(records)])
            records.append(Record(place, item.uri, item.label, hash, width, height))
        return Batch(len(part), rows[: len(records)], records, rejected)

    def _read(self, data: bytes | np.ndarray) -> tuple[np.ndarray, int, int]:
        if isinstance(data, bytes):
            return decode(data, self.size, self.fit)
        if self.width is None:
            return fit_array(data, self.size, self.fit), data.shape[1], data.shape[0]
        if not np.isfinite(data).all():
            raise Rejected("not finite", "a feature is NaN or infinite")
        return data, self.width, 1


def decoder_for(sources: list[Source], size: int, fit: Fit) -> Decoder:
    kinds = [source.features for source in sources if source.features is not None]
    return Decoder(size, fit, np.result_type(*kinds) if kinds else None, sources[0].width)


def processes_for(items: int, decoder: Decoder, asked: int | None = None) -> int:
    """Of those asked for, or one a processor, so many as are worth their start; features are only copied, so none but one."""
    every = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if decoder.width is not None else min(asked or every, 1 + items // WORTH_A_PROCESS)


def decode_parts(parts: Iterable[Part], decoder: Decoder, workers: int) -> Iterator[Batch]:
    """One batch per part, in the order of the parts, holding only a few at a time."""
    if workers <= 1:
        yield from map(decoder, parts)
        return
    with _processes(decoder, workers) as idle, ThreadPoolExecutor(workers) as threads:

        def ask(part: Part) -> Batch:
            connection, process = idle.get()
            try:
                connection.send(part)
                return connection.recv()
            except (EOFError, ConnectionError):
                raise _death(process) from None
            finally:
                idle.put((connection, process))

        waiting: deque[Future[Batch]] = deque()
        try:
            for part in parts:
                waiting.append(threads.submit(ask, part))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _death(process: SpawnProcess) -> UserError:
    """How a process ended, and what most likely ended it."""
    process.join(10)
    code = process.exitcode
    names = {-one.value: one.name for one in signal.Signals}
    how = (
        "does not answer"
        if code is None
        else f"was ended by {names[code]}"
        if code in names
        else f"ended with exit code {code}"
    )
    why = ", most likely for want of memory: take fewer processes (--workers) or smaller images" if code == -9 else ""
    return UserError(
        f"a decoding process {how}{why}. The same command goes on where it stopped. A Python script of your own must begin "
        'its work under `if __name__ == "__main__":`, for every such process reads the script anew.'
    )


@contextmanager
def _processes(decoder: Decoder, workers: int) -> Iterator["SimpleQueue[tuple[Connection, SpawnProcess]]"]:
    """Started, not forked. A process whose parent is gone, even killed, reads the end of its pipe and leaves."""
    context = get_context("spawn")
    idle: SimpleQueue[tuple[Connection, SpawnProcess]] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, decoder), daemon=True)
            process.start()
            there.close()
            stack.callback(process.join)
            stack.callback(here.close)
            idle.put((here, process))
        yield idle


def _serve(connection: Connection, decoder: Decoder) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    while True:
        try:
            connection.send(decoder(connection.recv()))
        except (EOFError, ConnectionError):
            return
