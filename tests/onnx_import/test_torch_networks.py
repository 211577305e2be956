"""Networks that torch_networks.py exports from torch: those in torch_exports/, and anew where torch is installed."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import AnyArray, run_onnxruntime

from nnrt_client import Compilation, Executor, OperationType, Runtime, from_onnx

pytestmark = pytest.mark.table

EXPORTS = Path(__file__).with_name("torch_exports")
# What the dimensions are that a file leaves open, from one run to the next.
SIZES: dict[str, list[dict[str, int]]] = {
    "decoder": [{"batch": 1, "length": 1, "past": 1}, {"batch": 2, "length": 4, "past": 6}],
    "detector": [{"batch": 1, "height": 64, "width": 64}, {"batch": 2, "height": 96, "width": 64}],
    "gru": [{"batch": 1}, {"batch": 3}],
    "lstm": [{"batch": 1}, {"batch": 3}],
    "quantized_cnn": [{"batch": 1}, {"batch": 4}],
    "segmenter": [{"batch": 1, "height": 32, "width": 48}, {"batch": 2, "height": 41, "width": 30}],
    "speech_activity": [{"batch": 2, "count": 64}, {"batch": 3, "count": 80}],
    "text_encoder": [{"batch": 1, "length": 3}, {"batch": 3, "length": 9}],
    "transformer": [{"batch": 1, "length": 3}, {"batch": 3, "length": 9}],
    "unet": [{"batch": 1, "height": 32, "width": 48}, {"batch": 2, "height": 37, "width": 42}],
    "vision_transformer": [{"batch": 1}, {"batch": 3}],
}
# What an input always is.
CONSTANTS = {"speech_activity": [{"rate": 16000}, {"rate": 8000}]}
NAMES = [f"{name}-{exporter}" for name in SIZES for exporter in ("torchscript", "dynamo")]


def fed(proto: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, AnyArray]:
    """What a run is given, in which free dimensions have these sizes."""
    rng = np.random.default_rng(8)
    feeds: dict[str, AnyArray] = {}
    for x in proto.graph.input:
        type_ = x.type.tensor_type
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in type_.shape.dim]
        match x.name:
            case "tokens":
                feeds[x.name] = rng.integers(0, 50, shape)
            case "mask":
                feeds[x.name] = np.tril(np.ones(shape, "i8"), 1)
            case _:
                feeds[x.name] = rng.normal(size=shape).astype("f4")
    return feeds


def require_same(path: Path, runtime: Runtime, constants: Mapping[str, int]) -> None:
    """Import the file, run it on the device, and compare with what ONNX Runtime makes of the file."""
    proto, model = onnx.load(path), from_onnx(path, constants=constants)
    name = path.stem.partition("-")[0]
    # A step of the output where a half is rounded the other way.
    step = 0.011 if name == "quantized_cnn" else 0
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            for sizes in SIZES[name]:
                feeds = {**fed(proto, sizes), **{name: np.array(value) for name, value in constants.items()}}
                given: list[AnyArray] = executor.run_sync([feeds[x.desc.name] for x in model.inputs])
                for mine, theirs in zip(given, run_onnxruntime(proto, feeds), strict=True):
                    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                    assert np.unique(theirs).size > 1
                    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4 + step)


@pytest.mark.parametrize("name", NAMES)
def test_exports_that_are_kept(name: str, each_runtime: Runtime) -> None:
    for constants in CONSTANTS.get(name.partition("-")[0], [{}]):
        require_same(EXPORTS / f"{name}.onnx", each_runtime, constants)


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_exported_quantization_reaches_the_operations(exporter: str) -> None:
    """Convolution, Relu and what is rounded behind them are one operation, whose weights are of 8 bits."""
    operations = from_onnx(EXPORTS / f"quantized_cnn-{exporter}.onnx").operations
    assert operations[:3] == (OperationType.QUANT_DTYPE_CAST, OperationType.CONV2D, OperationType.CONV2D)


@pytest.fixture(scope="session")
def fresh_exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The networks as the installed torch exports them."""
    pytest.importorskip("torch", reason="torch is not installed; the extra nnrt[exporters] has it")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed; the extra nnrt[exporters] has it")
    from torch_networks import write_exports

    folder = tmp_path_factory.mktemp("torch")
    write_exports(folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_exports_of_the_torch_that_is_installed(name: str, fresh_exports: Path, each_runtime: Runtime) -> None:
    for constants in CONSTANTS.get(name.partition("-")[0], [{}]):
        require_same(fresh_exports / f"{name}.onnx", each_runtime, constants)


def test_every_export_is_kept_and_run() -> None:
    assert sorted(path.stem for path in EXPORTS.iterdir()) == sorted(NAMES)
