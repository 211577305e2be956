"""Raw data taken out of a file's bytes: what is left says where they are, and is else what it was."""

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper
from part import examples

from nnrt_client.onnx_import.raw_data import LEAST_BYTES, SAME_FILE, without_raw_data

RNG = np.random.default_rng(0)
LARGE, SMALL = RNG.standard_normal((40, 50)), RNG.standard_normal(3)


def model(*tensors: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("Add", ["x", tensors[0].name], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in "xy")
    made: onnx.ModelProto = helper.make_model(
        helper.make_graph([node], "g", [x], [y], tensors), producer_name="p" * 9000
    )
    return made


def put_back(data: bytes) -> onnx.ModelProto:
    """Parse what is left, with the data where it was."""
    rest = without_raw_data(memoryview(data))
    assert rest is not None
    parsed = onnx.ModelProto.FromString(rest)
    for tensor in parsed.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries.get("location") == SAME_FILE:
            offset = int(entries["offset"])
            tensor.raw_data = data[offset : offset + int(entries["length"])]
            tensor.ClearField("data_location")
            del tensor.external_data[:]
    return parsed


def test_large_data_is_taken_out() -> None:
    whole = model(*(numpy_helper.from_array(array, f"w{at}") for at, array in enumerate((LARGE, SMALL, LARGE[1:]))))
    data = whole.SerializeToString()
    assert put_back(data) == whole
    rest = without_raw_data(memoryview(data))
    assert rest is not None
    assert len(rest) < len(data) - LARGE.nbytes - LARGE[1:].nbytes + 500
    assert len(data) > LEAST_BYTES


@pytest.mark.parametrize("kind", ["elsewhere", "numbers", "twice"])
def test_data_that_stays(kind: str) -> None:
    """What says where it is itself, isn't raw, or contradicts itself is protobuf's to read."""
    tensor = numpy_helper.from_array(LARGE, "w")
    if kind == "elsewhere":
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights")
    if kind == "numbers":
        tensor = helper.make_tensor("w", TensorProto.DOUBLE, LARGE.shape, LARGE.reshape(-1))
    data = model(tensor).SerializeToString()
    if kind == "twice":
        again = TensorProto(name="w", dims=tensor.dims, data_type=tensor.data_type, raw_data=tensor.raw_data)
        twice = again.SerializeToString() + TensorProto(raw_data=bytes(LARGE.nbytes)).SerializeToString()
        graph = model(numpy_helper.from_array(SMALL, "v")).graph
        inner = graph.SerializeToString() + b"\x2a" + _length(len(twice)) + twice
        data = b"\x3a" + _length(len(inner)) + inner
    assert without_raw_data(memoryview(data)) == data


def _length(number: int) -> bytes:
    encoded = []
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


@pytest.mark.parametrize("seed", range(4))
def test_broken_files(seed: int) -> None:
    """Whatever the bytes are: what protobuf reads in them is what it reads in the rest."""
    rng = np.random.default_rng(seed)
    sound = model(numpy_helper.from_array(LARGE, "w"), numpy_helper.from_array(SMALL, "v")).SerializeToString()
    begin = sound.index(LARGE.tobytes())
    for _ in range(examples(300)):
        broken = bytearray(sound)
        # Hardly anything depends on the data, so these are spared.
        places = rng.integers(begin + 600, size=2) - 300
        for place in places:
            broken[place] = rng.integers(256)
        data = bytes(broken[: rng.integers(len(broken))] if rng.random() < 0.3 else broken)
        try:
            expected = onnx.ModelProto.FromString(data)
        except DecodeError:
            rest = without_raw_data(memoryview(data))
            if rest is not None:
                with pytest.raises(DecodeError):
                    onnx.ModelProto.FromString(rest)
            continue
        if without_raw_data(memoryview(data)) is not None:
            assert put_back(data) == expected
