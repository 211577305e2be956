"""docs/inference-session.md says what there is."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import nnrt_client.onnxruntime as ours
from nnrt_client import Unsupported

PAGE = (Path(__file__).resolve().parents[2] / "docs/inference-session.md").read_text()
CALLS = dict(re.findall(r"^\| `([\w.]+)` \| (\w+) \|$", PAGE, re.MULTILINE))


def found(module: Any, call: str) -> Any:
    """The class's attribute or the module's name; None where there is none. Fields of a class with slots are there."""
    for name in call.split("."):
        module = getattr(module, name, None)
    return module


def test_the_counts() -> None:
    counts = Counter(CALLS.values())
    says = re.search(
        r"Of (\d+) calls (\d+) are as there, (\d+) are taken, (\d+) are refused, and (\d+) there are not", PAGE
    )
    assert says
    assert [int(count) for count in says.groups()] == [
        len(CALLS),
        *(counts[kind] for kind in ("yes", "taken", "refused", "no")),
    ]


@pytest.mark.parametrize("call", CALLS)
def test_what_there_is(call: str) -> None:
    kind, mine = CALLS[call], found(ours, call)
    owner, _, name = call.rpartition(".")
    if owner not in ("NodeArg", "ModelMetadata"):  # Theirs are no attributes of the class.
        assert found(onnxruntime, call) is not None or name.startswith("__"), "ONNX Runtime has no such name"
    if kind == "no":
        assert mine is None
        return
    assert mine is not None
    if kind != "refused":
        return
    with pytest.raises(Unsupported):
        if callable(mine):
            mine(*[None, "it", [], []][: mine.__code__.co_argcount])
        else:
            holder = getattr(ours, owner)()
            setattr(holder, name, True if getattr(holder, name) is False else "it")


@pytest.mark.slow
def test_without_onnx() -> None:
    """An extra: the module can be imported, and says what to install."""
    program = """
import sys
sys.modules["onnx"] = None
import nnrt_client.onnxruntime as onnxruntime
try:
    onnxruntime.InferenceSession("model.onnx")
except onnxruntime.errors.NotSupported as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.stderr, ended.stdout.endswith("install nnrt[onnx]\n")) == ("", True)


def test_what_applications_catch() -> None:
    """Each exception of ours stands where theirs does."""
    from onnxruntime.capi import onnxruntime_pybind11_state as theirs

    import nnrt_client.onnxruntime.capi.onnxruntime_pybind11_state as states

    assert all(hasattr(theirs, name) for name in states.__all__)
