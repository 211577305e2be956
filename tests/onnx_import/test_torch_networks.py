"""Networks that torch_networks.py exports from torch: those in torch_exports/, and anew where torch is installed."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import AnyArray, run_onnxruntime

from nnrt_client import Compilation, Executor, Model, OperationType, Runtime, from_onnx

EXPORTS = Path(__file__).with_name("torch_exports")
NAMES = [
    f"{name}-{exporter}"
    for name in ("detector", "lstm", "quantized_cnn", "transformer")
    for exporter in ("torchscript", "dynamo")
]
# What the dimensions are that a file leaves open, from one run to the next.
SIZES: dict[str, list[tuple[int, ...]]] = {
    "detector": [(1, 64, 64), (2, 96, 64)],
    "lstm": [(1,), (3,)],
    "quantized_cnn": [(1,), (4,)],
    "transformer": [(1, 3), (3, 9)],
}


def fed(model: Model, sizes: tuple[int, ...]) -> dict[str, AnyArray]:
    (x,) = model.inputs
    rest = iter(sizes)
    shape = [next(rest) if dim == -1 else dim for dim in x.desc.shape or ()]
    rng = np.random.default_rng(8)
    is_text = x.desc.name == "tokens"
    return {x.desc.name: rng.integers(0, 50, shape) if is_text else rng.normal(size=shape).astype("f4")}


def require_same(path: Path, runtime: Runtime) -> None:
    """Import the file, run it on the device, and compare with what ONNX Runtime makes of the file."""
    proto, model = onnx.load(path), from_onnx(path)
    name = path.stem.partition("-")[0]
    # A step of the output where a half is rounded the other way.
    step = 0.011 if name == "quantized_cnn" else 0
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            for sizes in SIZES[name]:
                feeds = fed(model, sizes)
                given: list[AnyArray] = executor.run_sync(list(feeds.values()))
                for mine, theirs in zip(given, run_onnxruntime(proto, feeds), strict=True):
                    assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                    assert np.unique(theirs).size > 1
                    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4 + step)


@pytest.mark.parametrize("name", NAMES)
def test_exports_that_are_kept(name: str, each_runtime: Runtime) -> None:
    require_same(EXPORTS / f"{name}.onnx", each_runtime)


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_exported_quantization_reaches_the_operations(exporter: str) -> None:
    """Convolution, Relu and what is rounded behind them are one operation, whose weights are of 8 bits."""
    operations = from_onnx(EXPORTS / f"quantized_cnn-{exporter}.onnx").operations
    assert operations[:3] == (OperationType.QUANT_DTYPE_CAST, OperationType.CONV2D, OperationType.CONV2D)


@pytest.fixture(scope="session")
def fresh_exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The networks as the installed torch exports them."""
    pytest.importorskip("torch", reason="torch is not installed; the extra nnrt[torch] has it")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed; the extra nnrt[torch] has it")
    from torch_networks import write_exports

    folder = tmp_path_factory.mktemp("torch")
    write_exports(folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_exports_of_the_torch_that_is_installed(name: str, fresh_exports: Path, each_runtime: Runtime) -> None:
    require_same(fresh_exports / f"{name}.onnx", each_runtime)


def test_every_export_is_kept_and_run() -> None:
    assert sorted(path.stem for path in EXPORTS.iterdir()) == sorted(NAMES)
