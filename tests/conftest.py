"""What tests share. Real images of the benchmark are found through ODST_TEST_DATA and skipped cleanly without it."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("ODST_TEST_DATA")
    if not folder:
        pytest.skip("ODST_TEST_DATA is not set: the real images are not on this machine")
    return Path(folder)
