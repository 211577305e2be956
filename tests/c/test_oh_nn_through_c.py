"""The cases of tests/oh_nn through the shared library, called as C calls it: all, or a part with each C function."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_cases(compiler: str, pytestconfig: pytest.Config) -> None:
    whole = ["--whole"] if pytestconfig.getoption("--whole") else []
    flags = ["-q", "-p", "through_c", "-p", "no:cacheprovider", "--no-header", *whole]
    places = [str(HERE), str(HERE.parent), str(HERE.parent / "plugins"), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, "oh_nn"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), "PYTEST_ADDOPTS": ""},
        cwd=HERE.parent, capture_output=True, text=True, timeout=390,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None and int(passed[1]) > (500 if whole else 150), ended.stdout[-2000:]
