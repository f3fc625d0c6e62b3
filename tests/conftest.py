"""What tests share. Real images of the benchmark are found through ODST_TEST_DATA and skipped cleanly without it."""

import os
import signal
from pathlib import Path

import pytest

# Tests interrupt processes they start. Started in the background by a shell, or by nohup, these would inherit that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("ODST_TEST_DATA")
    if not folder:
        pytest.skip("ODST_TEST_DATA is not set: the real images are not on this machine")
    return Path(folder)
