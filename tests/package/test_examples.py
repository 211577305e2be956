"""The example programs for ONNX files, as processes with a daemon on ONNX Runtime."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import warm
from daemon_process import DaemonProcess
from onnx import parser
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

# The mean red, green and blue, and what can be made of them: six classes.
CLASSIFIER = """
<ir_version: 8, opset_import: ["": 17]>
classifier (float[N, 3, 4, 4] image) => (float[N, 6] scores)
<float[6, 3] weights = {1, 0, 0,  0, 1, 0,  0, 0, 1,  -1, 0, 0,  0, -1, 0,  2, 0, 0}>
{
    means = GlobalAveragePool(image)
    flat = Flatten(means)
    scores = Gemm<transB = 1>(flat, weights)
}
"""
LABELS = ["red", "green", "blue", "no red", "no green", "twice red"]

VOCABULARY = ["[UNK]", "[CLS]", "[SEP]", "the", "cat", "dog", "sleep", "##s", "."]
# A dimension of its own for each piece.
TABLE = ", ".join(map(str, np.eye(len(VOCABULARY)).ravel().tolist()))
ENCODER = f"""
<ir_version: 8, opset_import: ["": 17]>
encoder (int64[N, L] input_ids, int64[N, L] attention_mask) => (float[N, L, {len(VOCABULARY)}] tokens)
<float[{len(VOCABULARY)}, {len(VOCABULARY)}] table = {{{TABLE}}},
 int64[1] last = {{2}}>
{{
    rows = Gather(table, input_ids)
    mask = Cast<to = 1>(attention_mask)
    column = Unsqueeze(mask, last)
    tokens = Mul(rows, column)
}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the files of both programs."""
    onnx.save(parser.parse_model(CLASSIFIER), tmp_path / "classifier.onnx")
    onnx.save(parser.parse_model(ENCODER), tmp_path / "encoder.onnx")
    (tmp_path / "labels.txt").write_text("\n".join(LABELS))
    (tmp_path / "vocabulary.txt").write_text("\n".join(VOCABULARY) + "\n")
    return tmp_path


def printed(place: Path, daemon: DaemonProcess, program: str, *arguments: str) -> list[str]:
    ended = warm.run(
        [sys.executable, EXAMPLES / program, *arguments],
        cwd=place,
        env={**os.environ, "XDG_CACHE_HOME": str(place), "NNRT_DEVICES": daemon.address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


@pytest.mark.slow
def test_an_image_is_classified(place: Path, onnxruntime_daemon: DaemonProcess) -> None:
    """Pure red, normalized: (1 - 0.485) / 0.229, -0.456 / 0.224 and -0.406 / 0.225."""
    Image.new("RGB", (9, 7), (255, 0, 0)).save(place / "red.png")
    lines = printed(
        place, onnxruntime_daemon, "classify_image.py", "classifier.onnx", "red.png", "--labels", "labels.txt"
    )
    assert lines == ["  4.4978  twice red", "  2.2489  red", "  2.0357  no green", " -1.8044  blue", " -2.0357  green"]


@pytest.mark.slow
def test_an_array_is_classified(place: Path, onnxruntime_daemon: DaemonProcess) -> None:
    np.save(place / "image.npy", np.array([1, 5, 3], "f4").reshape(1, 3, 1, 1) * np.ones((1, 3, 4, 4), "f4"))
    lines = printed(place, onnxruntime_daemon, "classify_image.py", "classifier.onnx", "image.npy")
    assert lines == ["  5.0000  1", "  3.0000  2", "  2.0000  5", "  1.0000  0", " -1.0000  3"]


@pytest.mark.slow
def test_sentences_are_compared(place: Path, onnxruntime_daemon: DaemonProcess) -> None:
    """[CLS] the cat sleep ##s . [SEP] and the like: one of seven pieces differs, or the only word is unknown."""
    sentences = ("The cat sleeps.", "the dog sleeps .", "sleeping")
    lines = printed(place, onnxruntime_daemon, "embed_text.py", "encoder.onnx", "vocabulary.txt", *sentences)
    # 6 / 7, and [CLS] [UNK] [SEP] has two in common: 2 / sqrt(7 * 3).
    assert lines == [
        " 1.000  0.857  0.436 The cat sleeps.",
        " 0.857  1.000  0.436 the dog sleeps .",
        " 0.436  0.436  1.000 sleeping",
    ]


def test_extra_of_ray_has_what_reads_images() -> None:
    """Ray does so with Pillow, which it doesn't bring."""
    assert "read_images" in (EXAMPLES / "ray_data.py").read_text()
    (extra,) = re.findall(r"^ray = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert '"pillow' in extra
