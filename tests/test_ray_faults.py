"""What a Ray cluster may refuse: one line each."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import clusters
from odst.engine.interface import running_on
from odst.engine.parts import complete
from odst.errors import UserError
from processes import command

pytest.importorskip("ray", reason="needs odst[ray]")
pytestmark = pytest.mark.slow  # two nodes start and are waited for

TOKEN = "a" * 64
FULL = """
from odst.engine.interface import running_on
from odst.engine.parts import complete
from odst.engine.ray import OnRay
from odst.errors import UserError
from clusters import Pacing
from pathlib import Path
import sys

work = Pacing(Path(sys.argv[2]))
try:
    list(OnRay(sys.argv[1]).map(work, range(3)))
except UserError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """The address of a node that asks for a token, and whose memory is full by its own measure."""
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    full = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
    with subprocess.Popen(
        [sys.executable, clusters.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | settings | full,
    ) as node:
        assert node.stdout and node.stdin
        yield next(line.strip() for line in node.stdout if line.startswith("127.0.0.1:"))
        node.stdin.write("\n")


def told(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, env=os.environ | clusters.SETTINGS | environment, timeout=120
    )


@pytest.mark.skipif(find_spec("ray._private.authentication") is None, reason="this Ray is older than its tokens")
@pytest.mark.parametrize("token", [{}, {"RAY_AUTH_TOKEN": "b" * 64}], ids=["missing", "wrong"])
def test_a_token_that_is_missing_or_wrong_is_one_line(guarded: str, token: dict[str, str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8, 3), np.uint8))
    words = command("pool", "build", tmp_path / "x.npy", "--out", tmp_path / "pool", "--address", guarded)
    done = told({"RAY_AUTH_MODE": "token", "HOME": str(tmp_path)} | token, *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "the cluster asks for a token, and yours is missing or wrong. Set RAY_AUTH_MODE=token" in done.stderr
    assert not (tmp_path / "pool").exists()


def test_a_task_that_is_killed_for_want_of_memory_is_not_tried_for_ever(guarded: str, tmp_path: Path) -> None:
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    done = told(settings, sys.executable, "-c", FULL, guarded, str(tmp_path))
    assert done.stdout.startswith("--engine ray: a task was killed for want of memory. What is done stays done: lower")


def test_nodes_without_a_processor_or_with_another_odst_are_named(tmp_path: Path) -> None:
    from odst.engine.ray import OnRay

    other = tmp_path / "other" / "odst-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: odst\nVersion: 9.9\n")
    cluster = clusters.head(num_cpus=0)
    import ray

    try:
        with pytest.raises(UserError, match=r"the cluster offers no CPU\. Start a node with `ray start --num-cpus N`"):
            OnRay(cluster.address)
        path = os.pathsep.join([str(other.parent), os.environ["PYTHONPATH"]])
        cluster.add_node(**clusters.NODE, env_vars={"PYTHONPATH": path})
        with running_on(OnRay(cluster.address)), pytest.raises(UserError) as refused:
            complete(tmp_path / "stage", {}, [1] * 4, clusters.Pacing(tmp_path / "stage"), name=None)
        with running_on(clusters.Unasked(cluster.address)), pytest.raises(UserError) as late:
            complete(tmp_path / "stage", {}, [1] * 4, clusters.Pacing(tmp_path / "stage"), name=None)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert ": odst 9.9 there, " in str(refused.value)
    assert str(refused.value).endswith(" here. Install the same on every node")
    assert str(late.value) == str(refused.value)
    assert sorted(file.name for file in (tmp_path / "stage").iterdir()) == ["about.json"]
