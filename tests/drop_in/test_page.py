"""docs/reference/onnxruntime-interface.md says what there is."""

import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import nnrt_client.onnxruntime as ours
from nnrt_client import Unsupported

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/onnxruntime-interface.md").read_text()
KINDS = {"Work": "yes", "Accepted": "taken", "Refused": "refused", "Absent": "no"}
LISTS = re.findall(r"^\*\*(\w+).*?\*\* \((\d+)\): (.*)\.$", PAGE, re.MULTILINE)
CALLS = {call: KINDS[title] for title, _, calls in LISTS for call in re.findall(r"`([\w.]+)`", calls)}


def found(module: Any, call: str) -> Any:
    """The class's attribute or the module's name; None where there is none. Fields of a class with slots are there."""
    for name in call.split("."):
        module = getattr(module, name, None)
    return module


def test_the_counts() -> None:
    counts = Counter(CALLS.values())
    assert {KINDS[title]: int(count) for title, count, _ in LISTS} == counts


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


LIBRARY = """
import sys
import nnrt_client.onnxruntime
sys.modules["onnxruntime"] = nnrt_client.onnxruntime

# As Optimum's ORTModel imports and calls it, with tensors of torch as arrays.
import numpy as np
import onnxruntime as ort
from onnxruntime import InferenceSession, IOBinding
from onnxruntime.capi._pybind_state import Fail, OrtValue, SessionOptions
from onnxruntime.capi.onnxruntime_inference_collection import OrtValue as same
from onnxruntime.quantization import QuantFormat, quantize_dynamic
from onnxruntime.quantization.registry import QDQRegistry
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.onnx_model import OnnxModel
from nnrt_client.onnxruntime.quantization import quantize_dynamic as mine
from nnrt_client.model_session.partition.client_part import require_onnxruntime

assert mine is quantize_dynamic
try:
    require_onnxruntime()
except nnrt_client.Unsupported as error:
    assert "sys.modules['onnxruntime'] is nnrt_client.onnxruntime" in str(error)
else:
    raise AssertionError("parts of models would run on the device")
assert OrtValue is same is ort.OrtValue and SessionOptions is ort.SessionOptions
provider = "CPUExecutionProvider"
assert provider in ort.get_available_providers()
session = InferenceSession(sys.argv[1], providers=[provider], provider_options=[{}], sess_options=None)
assert session._model_path == sys.argv[1] and session._sess is not None
main = session.get_providers()[0]
session.get_provider_options()[main]
binding = IOBinding(session)
x, y, s = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
for name, array in (("x", x), ("y", y)):
    binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
binding.bind_output("s", "cpu", 0, np.float32, s.shape, s.ctypes.data)
session.run_with_iobinding(binding)
assert [value.device_name() for value in binding._iobinding.get_outputs()] == ["cpu"]
assert (s == 2).all()
session._sess.run(["s"], {"x": x, "y": y}, None)
try:
    from onnxruntime.capi._pybind_state import quantize_matmul_4bits
except ImportError as error:
    print(main, error)
"""


@pytest.mark.slow
def test_libraries_that_import_onnx_runtime_themselves(model_file: Path) -> None:
    """Such as Optimum: with the package in place of theirs; what is a tool is ONNX Runtime's own."""
    ended = subprocess.run([sys.executable, "-c", LIBRARY, model_file], capture_output=True, text=True, timeout=60)
    assert ended.stdout.startswith("NnrtExecutionProvider cannot import name 'quantize_matmul_4bits'"), ended.stderr


def test_tools_are_their_own() -> None:
    """Under both names they are the same, however deep, and whichever is imported first."""
    for module in ("transformers.onnx_model", "quantization", "quantization.registry"):
        mine, theirs = (import_module(f"{name}.{module}") for name in ("nnrt_client.onnxruntime", "onnxruntime"))
        assert mine is theirs
        assert mine.__name__ == f"onnxruntime.{module}"
    assert find_spec("nnrt_client.onnxruntime.nothing") is None
