"""The programs in docs/guides/ray.md, run in a cluster."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from package.test_guides import MODELS, OF_RAY, PYTHON
from PIL import Image

pytest.importorskip("ray.data", reason="needs Ray: `make engines` has it")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_programs(cluster: Any, tmp_path: Path) -> None:
    """They run one after another in one process, in a folder with a model and images, and print what the page shows."""
    onnx.save(parser.parse_model(MODELS["model.onnx"]), tmp_path / "model.onnx")
    (tmp_path / "images").mkdir()
    for index in range(4):
        Image.fromarray(np.full((8, 8, 3), index, "u1")).save(tmp_path / "images" / f"{index}.png")
    blocks, prints = zip(*PYTHON.findall(OF_RAY.read_text()), strict=True)
    ended = subprocess.run(
        [sys.executable, "-c", "".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert (ended.returncode, ended.stdout) == (0, "".join(prints)), ended.stderr
