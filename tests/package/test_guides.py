"""Examples on the pages for users run: Python against real daemons; of commands the options are checked."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
import warm
from daemon_process import DaemonProcess
from onnx import parser
from source_files import ROOT

from nnrt_client.cli import main as nnrt
from nnrt_device_service.cli import main as nnrt_device

FOLDERS = ("start", "guides", "reference", "reference/python", "explanation")
PAGES = [ROOT / "README.md", *(page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("*.md")))]
COMMANDS = {"nnrt": nnrt, "nnrt-device": nnrt_device}
# Models that pages have.
MODELS = {
    "model.onnx": """
<ir_version: 8, opset_import: ["": 17]>
pooling (float[N, 3, 224, 224] image) => (float[N, 3, 1, 1] means) { means = GlobalAveragePool(image) }
""",
    "detector.onnx": """
<ir_version: 8, opset_import: ["": 17]>
detector (float[1, 3, 64, 64] image) => (int64[K, 3] chosen)
<float[5, 3, 1, 1] weight = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1},
 int64[2] sizes = {4, 1}, int64[3] of_boxes = {1, -1, 4}, int64[3] of_scores = {1, 1, -1},
 int64 most = {10}, float overlap = {0.5}, float least = {0.1}>
{
    found = Conv<strides = [16, 16]>(image, weight)
    likely = Sigmoid(found)
    corners, certain = Split<axis = 1>(likely, sizes)
    last = Transpose<perm = [0, 2, 3, 1]>(corners)
    boxes = Reshape(last, of_boxes)
    scores = Reshape(certain, of_scores)
    chosen = NonMaxSuppression(boxes, scores, most, overlap, least)
}
""",
    "decoder.onnx": """
<ir_version: 8, opset_import: ["": 17]>
decoder (int64[B, S] input_ids, int64[B, T] attention_mask,
         float[B, 1, P, 16] "past_key_values.0.key", float[B, 1, P, 16] "past_key_values.0.value")
 => (float[B, S, 16] logits, float[B, 1, T, 16] "present.0.key", float[B, 1, T, 16] "present.0.value")
<int64 one = {1}, int64 count = {16}, int64[1] at_1 = {1}, int64[2] at_1_2 = {1, 2},
 float[2] off_on = {0, 1}, float least = {-1e9}, float sure = {3}>
{
    x = OneHot(input_ids, count, off_on)
    new = Unsqueeze(x, at_1)
    "present.0.key" = Concat<axis = 2>("past_key_values.0.key", new)
    "present.0.value" = Concat<axis = 2>("past_key_values.0.value", new)
    keys = Transpose<perm = [0, 1, 3, 2]>("present.0.key")
    scores = MatMul(new, keys)
    padding = Sub(one, attention_mask)
    is_padding = Cast<to = 1>(padding)
    bias = Mul(is_padding, least)
    biases = Unsqueeze(bias, at_1_2)
    masked = Add(scores, biases)
    chances = Softmax(masked)
    context = MatMul(chances, "present.0.value")
    seen = Squeeze(context, at_1)
    next = Add(input_ids, one)
    wrapped = Mod(next, count)
    following = OneHot(wrapped, count, off_on)
    likely = Mul(following, sure)
    logits = Add(likely, seen)
}
""",
    "speech.onnx": """
<ir_version: 8, opset_import: ["": 17]>
detector (float[N, 512] chunk, float[N, 1] state) => (float[N, 1] speech, float[N, 1] stateN)
<float[1] kept = {0.5}, float[1] gain = {0.5}>
{
    power = Mul(chunk, chunk)
    loudness = ReduceMean<axes = [1]>(power)
    before = Mul(state, kept)
    now = Mul(loudness, gain)
    stateN = Add(before, now)
    speech = Sigmoid(stateN)
}
""",
}
# Run by tests/on_ray/test_page.py.
OF_RAY = ROOT / "docs/guides/ray.md"
# What a page's blocks print ends with this, each.
END = "\x1e"


# A block of Python, and what it prints where the page says so.
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)


def programs(page: Path) -> list[tuple[str, str]]:
    """Return the page's blocks of Python with what they print; one of a file, whose first line names it, is in it."""
    found = []
    for block, prints in PYTHON.findall(page.read_text()):
        first, _, rest = block.partition("\n")
        if first.startswith("# ") and (ROOT / first[2:]).is_file():
            assert rest in (ROOT / first[2:]).read_text()
        else:
            found.append((block, prints))
    return found


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if programs(page) and page != OF_RAY], ids=named)
def test_python_runs(
    page: Path,
    onnxruntime_daemon: DaemonProcess,
    shared_daemon: DaemonProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The blocks of a page follow each other in one program, in a folder with `image.npy` and the models.

    `127.0.0.1:50051` is a daemon of ONNX Runtime, `127.0.0.1:50052` one of the reference backend. A block of the
    language `text` right behind one of Python is what that prints.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, text in MODELS.items():
        onnx.save(parser.parse_model(text), tmp_path / name)
    np.save(tmp_path / "image.npy", np.ones((1, 3, 224, 224), "f4"))
    shown = programs(page)
    program = "".join(f"{block}\nprint({END!r}, flush=True)\n" for block, _ in shown)
    program = program.replace("127.0.0.1:50051", onnxruntime_daemon.address)
    program = program.replace("127.0.0.1:50052", shared_daemon.address)
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    ended = warm.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    *printed, rest = ended.stdout.split(f"{END}\n")
    assert rest == ""
    for (_, says), prints in zip(shown, printed, strict=True):
        assert not says or prints == says


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command of ours in the page's shell blocks."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\||;", line.removeprefix("$ ")):
                words = shlex.split(part, comments=True)
                if words and words[0] in COMMANDS:
                    yield [word for word in words if word != "&"]


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))], ids=named)
def test_commands_exist(page: Path) -> None:
    """Each command has the options that a page gives it, and all that it needs."""
    for name, *words in commands(page):
        check(COMMANDS[name], name, words)


def check(command: click.Command, name: str, words: list[str]) -> None:
    """Have click read the words as it does for a user, but run nothing."""
    if words == ["--help"] or words == ["--version"]:
        return
    if isinstance(command, click.Group):
        found, *behind = words
        child = command.get_command(click.Context(command), found)
        assert child is not None, f"{name} has no command {found!r}"
        check(child, f"{name} {found}", behind)
        return
    context = command.make_context(name, list(words), resilient_parsing=True)
    command.make_parser(context).parse_args(list(words))
