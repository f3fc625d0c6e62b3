"""What `from odst import ...` promises: its examples run as pasted, and the loop takes features of any float type."""

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import odst
from blobs import SCHEDULES, blob_world, make_mlp
from odst import ODST, Labelled, Pool, score, self_train
from odst.data.packing import build_pool
from runs import bar_world, config, make_run

ROOT = Path(__file__).parent.parent
EXAMPLES = [
    pytest.param(block, id=f"{page}-{i}", marks=() if "load(" in block else pytest.mark.slow)
    for page in ("README.md", "docs/api.md")
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.fixture
def at_hand(tmp_path, monkeypatch):
    """What an example may take for granted: a user's own arrays, and a pool and a run in the working folder."""
    monkeypatch.chdir(tmp_path)
    blobs, world = blob_world(), bar_world()
    np.save("pool.npy", world.pool.x)
    build_pool("pool.npy", tmp_path / "pool", workers=1)
    make_run(tmp_path / "runs" / "first", world, config(method={"name": "supervised"}))
    own = {"X": blobs.labelled.x, "y": blobs.labelled.y, "U": blobs.pool.x, "O": blobs.val_out, "X_new": blobs.test.x}
    return own | {"T": world.labelled, "val_in": world.val_in, "val_out": world.val_out, "x": world.test.x}


@pytest.mark.parametrize("block", EXAMPLES)
def test_the_examples_work_as_pasted_and_import_from_odst_alone(block, at_hand, capsys):
    assert set(re.findall(r"from (odst[\w.]*) import", block)) == {"odst"}
    loop = "self_train(" in block  # it takes nothing for granted
    exec(block, {} if loop else at_hand)
    if loop:
        errors = [float(percent) for percent in re.findall(r"round \d: error ([\d.]+)%", capsys.readouterr().out)]
        assert len(errors) == 4
        assert errors[-1] < 0.65 * errors[0]


def test_every_public_name_can_be_imported_from_odst():
    assert {name for name in odst.__all__ if not hasattr(odst, name)} == set()
    promised = "ODST ODSTClassifier Data Labelled Phase Pool Schedule self_train score make_network open_pool load"
    assert set(promised.split()) <= set(odst.__all__)


def test_importing_odst_does_not_wait_for_torch():
    loaded = "import sys, odst; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded]).returncode == 0


def test_the_package_carries_its_types():
    assert (Path(odst.__file__).parent / "py.typed").exists()
    assert (
        "py.typed" in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["odst"]
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_loop_learns_from_features_of_any_float_type(dtype):
    data = blob_world()
    data = replace(
        data,
        labelled=Labelled(data.labelled.x.astype(dtype), data.labelled.y),
        pool=Pool(data.pool.x.astype(dtype), truth=data.pool.truth),
        val_in=Labelled(data.val_in.x.astype(dtype), data.val_in.y),
        val_out=data.val_out.astype(dtype),
        test=Labelled(data.test.x.astype(dtype), data.test.y),
        out_tests={name: x.astype(dtype) for name, x in data.out_tests.items()},
    )
    recipe = replace(ODST, alpha=0.95, ratio=(5, 10))
    base, _, last = (score(one, data).metrics for one in self_train(recipe, data, make_mlp, SCHEDULES))
    assert last["related"] > 0.9
    assert last["error"] <= base["error"] + 0.02
    assert last["od_auroc"] > 0.95
