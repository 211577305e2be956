"""The programs of examples/from_onnxruntime print what they print with ONNX Runtime itself."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import warm
from daemon_process import DaemonProcess

PROGRAMS = Path(__file__).resolve().parents[2] / "examples/from_onnxruntime"
SENTENCES = ("A cat sleeps.", "The cat sleeps.", "It rains, and rains, and rains.")

# What makes the one program the other, as their README says it.
_CHANGES = {
    "from nnrt_client import onnxruntime": "import onnxruntime",
    '("NnrtExecutionProvider", {"device": device})': '"CPUExecutionProvider"',
    '", "nnrt")': '", "cpu")',
}


def printed(program: Path, place: Path, *arguments: str) -> str:
    ended = warm.run(
        [sys.executable, program, *arguments],
        cwd=place,
        env={**os.environ, "XDG_CACHE_HOME": str(place / "cache")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    # A program that ends at once may end before its models are in the user's cache, and says so.
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the models, which are always the same."""
    place = tmp_path_factory.mktemp("programs")
    printed(PROGRAMS / "make_models.py", place)
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read_text.py", (), ["31415926535", "27182818", "1618033988749"]),
        # Of a frame of 32 ms it knows only whether there was speech in it.
        ("find_speech.py", (), ["0.51 s to 0.90 s", "1.31 s to 1.70 s"]),
        ("compare_sentences.py", SENTENCES, None),
        ("continue_text.py", ("once upon a time", "--letters", "24"), None),
    ],
)
def test_they_print_the_same(
    name: str, arguments: Sequence[str], expected: list[str] | None, place: Path, onnxruntime_daemon: DaemonProcess
) -> None:
    text = (PROGRAMS / name).read_text()
    for ours, theirs in _CHANGES.items():
        text = text.replace(ours, theirs)
    assert "nnrt_client" not in text
    (place / name).write_text(text)
    own = printed(PROGRAMS / name, place, *arguments, "--device", onnxruntime_daemon.address)
    assert own == printed(place / name, place, *arguments)
    assert expected is None or own.splitlines() == expected


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda program: program.name)
def test_the_page_names_each(program: Path) -> None:
    assert program.name in (PROGRAMS / "README.md").read_text()
