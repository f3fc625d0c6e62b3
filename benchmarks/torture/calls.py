"""A command in a process of its own."""

import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.torture.shim import Shim

PATIENCE = 240.0  # seconds: a command that takes longer hangs
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "120", "ODST_CACHE": ""}
NEW = "from benchmarks.torture.shim import Shim; Shim({kind!r}, {n}).install(); from odst.cli import main; main()"


@dataclass(frozen=True)
class Ended:
    code: int  # negative: the signal that ended it; None of these is a timeout, which is -100
    out: str
    err: str
    count: int = 0  # file operations

    @property
    def crashed(self) -> str:
        """Why this is no decent end, or nothing."""
        if "Traceback (most recent call last)" in self.err:
            return "traceback: " + self.err.strip().splitlines()[-1][:200]
        if self.code == -100:
            return "hangs"
        if self.code < 0:
            return f"signal {-self.code}"
        if self.code not in (0, 2):
            return f"exit code {self.code}: {self.err.strip()[-200:]}"
        lines = [line for line in self.err.splitlines() if line.startswith("odst: ")]
        if self.code == 2 and len(lines) != 1 and "Usage:" not in self.err:
            return f"exit code 2 with {len(lines)} lines: {self.err.strip()[-200:]}"
        return ""


def preload() -> None:
    """Import once what every command would; no tensor is computed here, so that a fork has no threads to miss."""
    for name in (
        "torch", "odst.run.execution", "odst.report.page", "odst.report.comparison", "odst.classifier.load", "odst.classifier.predict",
        "odst.classifier.export", "odst.project.init", "odst.duplicates", "odst.data.packing", "odst.data.embedding", "odst.cli.screen",
        "matplotlib.figure", "matplotlib.backends.backend_agg", "sklearn.linear_model", "torch.optim.sgd",
    ):  # fmt: skip
        import_module(name)
    from odst.cli import COMMANDS

    for name in COMMANDS:
        import_module(f"odst.cli.{name}")


class Call:
    """A forked process that runs a command in a folder, with a shim in it if one is given."""

    def __init__(self, words: list[str], folder: Path, shim: Shim | None = None):
        self.files = [tempfile.TemporaryFile() for _ in "123"]  # noqa: SIM115  stdout, stderr, the shim's count
        self.begin = time.monotonic()
        sys.stdout.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: none of ours computes
            self.pid = os.fork()
        if self.pid == 0:
            os._exit(self._inside(words, folder, shim))

    def _inside(self, words: list[str], folder: Path, shim: Shim | None) -> int:
        code = 1
        try:
            for number in (1, 2):
                os.dup2(self.files[number - 1].fileno(), number)
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8")
            sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", write_through=True)
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL)
            os.chdir(folder)
            sys.path.insert(0, "")
            os.environ |= ENVIRONMENT
            sys.argv = ["odst", *words]
            from odst.cli import main

            if shim is not None:
                shim.owner = os.getpid()
                shim.install()
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            if shim is not None:
                os.write(self.files[2].fileno(), str(shim.count).encode())
            sys.stdout.flush()
            sys.stderr.flush()
        return code

    def wait(self) -> Ended:
        pause = 0.002
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() - self.begin > PATIENCE:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                code = -100
                break
            time.sleep(pause)
            pause = min(pause * 1.3, 0.05)
        texts = []
        for file in self.files:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
            file.close()
        return Ended(code, texts[0], texts[1], int(texts[2] or 0))


def call(words: list[str], folder: Path, shim: Shim | None = None) -> Ended:
    return Call(words, folder, shim).wait()


def call_anew(words: list[str], folder: Path, kind: str = "count", n: int = 0) -> Ended:
    """The same in a Python that has imported nothing."""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", NEW.format(kind=kind, n=n), *words], cwd=folder, capture_output=True, text=True,
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": paths}, timeout=PATIENCE,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)
