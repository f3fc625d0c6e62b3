"""What `from odst import ...` promises: the example runs as pasted, and the loop takes features of any float type."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import odst
from blobs import SCHEDULES, blob_world, make_mlp
from odst import ODST, Labelled, Pool, self_train
from odst.evaluation.scoring import score

ROOT = Path(__file__).parent.parent
LOOP = "self_train("


def example():
    """The first Python block that calls the loop, in the README or, where that has none, in docs/api.md."""
    for page in (ROOT / "README.md", ROOT / "docs" / "api.md"):
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            if LOOP in block:
                return block
    raise AssertionError("neither README.md nor docs/api.md shows the loop")


@pytest.mark.slow
def test_the_example_works_as_pasted(tmp_path):
    done = subprocess.run([sys.executable, "-c", example()], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    errors = [float(percent) for percent in re.findall(r"^round \d: error ([\d.]+)%", done.stdout, re.MULTILINE)]
    assert len(errors) == 4
    assert errors[-1] < 0.65 * errors[0]


def test_every_public_name_can_be_imported_from_odst():
    assert {name for name in odst.__all__ if not hasattr(odst, name)} == set()
    assert {"ODST", "Data", "ODSTClassifier", "self_train"} <= set(odst.__all__)


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
