"""Compiled models as files: what comes back is what went in, and everything else is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nnrt_hdi.backend import Capabilities, DeviceInfo, ModelConfig
from nnrt_hdi.enums import DataType, DeviceType, Format, PerformanceMode, Priority
from nnrt_hdi.errors import InvalidFile, InvalidParameter
from nnrt_hdi.files.compiled import KIND, MAX_PARTS, MAX_VERSION, CompiledModel, Target
from nnrt_hdi.files.container import packed, unpacked
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import QuantParam, TensorSpec

INFO = DeviceInfo("left", "acme", DeviceType.ACCELERATOR, Capabilities(), "acme-ml", "1.2")
MODEL = CompiledModel(
    Target.of(INFO, "left_acme_v2_1"),
    bytes(range(32)),
    ModelConfig(enable_float16=True, mode=PerformanceMode.HIGH, extensions={"layout": b"\x00\xff", "empty": b""}),
    (TensorSpec(DataType.INT8, (-1, 3), Format.NHWC, (QuantParam(0.1, -3),), "x"),),
    (TensorSpec(DataType.FLOAT32, (), name="y"), TensorSpec(DataType.BOOL, (0,))),
    7,
    (Part.of(b"one"), Part.of(b""), Part.of(b"three")),
)
FILE = b"".join(MODEL.packed())


def test_there_and_back() -> None:
    assert CompiledModel.unpacked(FILE) == MODEL


def test_notes_of_the_device_are_kept() -> None:
    noted = replace(MODEL, notes={"computed in 32 bits": 3})
    assert CompiledModel.unpacked(b"".join(noted.packed())) == noted


def test_the_priority_is_not_that_of_the_file() -> None:
    urgent = replace(MODEL, config=replace(MODEL.config, priority=Priority.HIGH))
    assert b"".join(urgent.packed()) == FILE


def test_every_flipped_bit_and_length() -> None:
    for bit in range(8 * len(FILE)):
        damaged = bytearray(FILE)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidFile):
            CompiledModel.unpacked(damaged)
    for length in range(len(FILE)):
        with pytest.raises(InvalidFile):
            CompiledModel.unpacked(FILE[:length])
    with pytest.raises(InvalidFile):
        CompiledModel.unpacked(FILE + b"\0")


@pytest.mark.parametrize("count", [0, 1, MAX_PARTS, MAX_PARTS + 1])
def test_number_of_parts(count: int) -> None:
    parts = (Part.of(b"x"),) * count
    many = b"".join(packed(KIND, ABOUT, parts))
    if 1 <= count <= MAX_PARTS:
        assert len(CompiledModel.unpacked(many).parts) == count
        return
    with pytest.raises(InvalidFile, match=f"it has {count} parts; a compiled model has 1..100"):
        CompiledModel.unpacked(many)
    with pytest.raises(InvalidParameter, match=f"it has {count} parts; a compiled model has 1..100"):
        replace(MODEL, parts=parts).packed()


@pytest.mark.parametrize(
    "changes",
    [
        *({"version": version} for version in (True, 1.5, -1, MAX_VERSION + 1)),
        *({"build_s": seconds} for seconds in (1, -1.0, float("inf"), float("nan"))),
    ],
    ids=str,
)
def test_what_can_not_be_read_is_not_written(changes: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidParameter, match=r"no file can hold this compiled model: .* not that of a compiled model"
    ):
        replace(MODEL, **changes).packed()
    assert CompiledModel.unpacked(b"".join(replace(MODEL, version=MAX_VERSION, build_s=None).packed()))


def test_another_kind_of_file() -> None:
    with pytest.raises(InvalidFile, match="of kind 'graph'"):
        CompiledModel.unpacked(b"".join(packed("graph", {}, [])))


ABOUT, _ = unpacked(KIND, FILE)
JUNK: Sequence[Any] = (None, True, 1.5, float("nan"), -(10**400), "text", [], [[]], [None], {}, {"a": 1}, "\ud800", 0)
SOUND: Mapping[str, tuple[Any, ...]] = {
    "device": ("text", "\ud800"),
    "vendor": ("text", "\ud800"),
    "backend": ("text", "\ud800"),
    "backend_version": ("text", "\ud800"),
    "float16": (True,),
    "version": (0,),
    "extensions": ({},),
    "build_s": (None, 1.5),
    "inputs": ([],),
    "outputs": ([],),
}


@pytest.mark.parametrize("name", ABOUT)
def test_junk_in_the_manifest(name: str) -> None:
    """Digests are right, but what is said is not."""
    for junk in (value for value in JUNK if value not in SOUND.get(name, ())):
        with pytest.raises(InvalidFile, match=r"not that of a compiled model|not Unicode") as refusal:
            CompiledModel.unpacked(b"".join(packed(KIND, ABOUT | {name: junk}, MODEL.parts)))
        assert len(str(refusal.value)) < 300
    without = {key: value for key, value in ABOUT.items() if key != name}
    with pytest.raises(InvalidFile, match=f"KeyError '{name}'"):
        CompiledModel.unpacked(b"".join(packed(KIND, without, MODEL.parts)))


@pytest.mark.parametrize(
    ("changes"),
    [
        {"device_type": "TOASTER"},
        {"mode": "WARP"},
        {"source": "zz"},
        {"extensions": {"name": "zz"}},
        {"extensions": {"name": 5}},
        {"notes": ["note"]},
        {"notes": {"note": 0}},
        {"notes": {"note": True}},
        {"inputs": [{}]},
        {"inputs": [ABOUT["inputs"][0] | {"shape": [2**31]}]},
        {"inputs": [ABOUT["inputs"][0] | {"shape": [1.0]}]},
        {"inputs": [ABOUT["inputs"][0] | {"data_type": "FLOAT8"}]},
        {"outputs": ["FLOAT32"]},
        {"version": "7"},
    ],
)
def test_words_and_numbers_nobody_would_write(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidFile, match=r"not that of a compiled model|not Unicode"):
        CompiledModel.unpacked(b"".join(packed(KIND, ABOUT | changes, MODEL.parts)))


def test_devices_of_one_kind() -> None:
    """Another device of the same vendor, type, backend and version can load it."""
    target = MODEL.target
    other = Target.of(replace(INFO, device_name="right"), "right_acme_v2_1")
    assert other != target
    assert other.kind == target.kind
    for info in (
        replace(INFO, vendor_name="ecma"),
        replace(INFO, device_type=DeviceType.CPU),
        replace(INFO, backend_name="ml"),
        replace(INFO, backend_version="1.3"),
    ):
        assert Target.of(info, "left_acme_v2_1").kind != target.kind
    assert target.describe_kind() == "acme-ml 1.2 (acme, ACCELERATOR)"
