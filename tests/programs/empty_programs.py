"""Programs that crash ONNX Runtime 1.32, or make it hang, for inputs of some shapes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
import pytest
from daemon_process import DaemonProcess
from program_models import AnyArray, parsed, weights

from nnrt_client import Unsupported, Way, load

faulty = pytest.mark.skipif(
    onnxruntime.__version__ != "1.32.0", reason="the faults are known of ONNX Runtime 1.32.0 only"
)


@dataclass(frozen=True)
class EmptyCase:
    """Model with inputs that crash it or make it hang, and with valid inputs."""

    name: str
    model: onnx.ModelProto
    fatal: Mapping[str, AnyArray]
    harmless: Mapping[str, AnyArray]
    signal: str


def ones(**shapes: tuple[int, ...]) -> dict[str, AnyArray]:
    return {name: np.ones(shape, "f4") for name, shape in shapes.items()}


GRU = parsed(
    "f (float[T, B, 4] x) => (float[T, 1, B, 3] y) { y = GRU <hidden_size = 3> (x, w, r) }",
    weights("w", 1, 9, 4),
    weights("r", 1, 9, 3),
)
LSTM = parsed(
    "f (float[T, B, 4] x) => (float[T, 1, B, 3] y) { y = LSTM <hidden_size = 3> (x, w, r) }",
    weights("w", 1, 12, 4),
    weights("r", 1, 12, 3),
)
UNIQUE = parsed("f (float[N, M] x) => (float[K, M] y) { y = Unique <axis = 0> (x) }")
ATTENTION = parsed(
    "f (float[N, T, C] q, float[N, T, C] k) => (float[N, T, C] y)"
    " { y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, k) }"
)
GROUPED = parsed(
    """
    f (float[B, T, 16] q, float[B, 2, P, 8] past, int32[B] lengths) => (float[B, T, 16] y) {
        total = Constant <value = int32 {9}> ()
        y, k, v = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2>
            (q, q, q, past, past, lengths, total)
    }
    """
)
# The slice leaves no step of a sequence of one.
LATE = parsed(
    """
    f (float[T, 2, 4] x) => (float[T, 1, B, 3] y) {
        one = Constant <value = int64[1] {1}> ()
        end = Constant <value = int64[1] {9}> ()
        rest = Slice (x, one, end)
        y = GRU <hidden_size = 3> (rest, w, r)
    }
    """,
    weights("w", 1, 9, 4),
    weights("r", 1, 9, 3),
)


def grouped(batch: int) -> dict[str, AnyArray]:
    return {**ones(q=(batch, 1, 16), past=(batch, 2, 8, 8)), "lengths": np.full(batch, 8, "i4")}


CRASHING = [
    EmptyCase("GRU-batch", GRU, ones(x=(5, 0, 4)), ones(x=(5, 2, 4)), "SIGABRT"),
    EmptyCase("GRU-steps", GRU, ones(x=(0, 2, 4)), ones(x=(5, 2, 4)), "SIGABRT"),
    EmptyCase("LSTM-batch", LSTM, ones(x=(5, 0, 4)), ones(x=(5, 2, 4)), "SIGABRT"),
    EmptyCase("Unique", UNIQUE, ones(x=(3, 0)), ones(x=(3, 2)), "SIGABRT"),
    EmptyCase(
        "MultiHeadAttention", ATTENTION, ones(q=(1, 4, 0), k=(1, 4, 0)), ones(q=(1, 4, 8), k=(1, 4, 8)), "SIGFPE"
    ),
    EmptyCase("GroupQueryAttention", GROUPED, grouped(0), grouped(2), "SIGFPE"),
    EmptyCase("empty-inside", LATE, ones(x=(1, 2, 4)), ones(x=(3, 2, 4)), "SIGABRT"),
]
ENDLESS = EmptyCase(
    "Conv",
    parsed("f (float[1, 1, H, W] x, float[1, 1, A, B] w) => (float[1, 1, K, L] y) { y = Conv (x, w) }"),
    ones(x=(1, 1, 5, 5), w=(1, 1, 0, 0)),
    ones(x=(1, 1, 5, 5), w=(1, 1, 3, 3)),
    "",
)


def require_only_its_run_fails(daemon: DaemonProcess, case: EmptyCase) -> None:
    """Check that the fatal run of a program ends with an error, twice, and that all other runs give results."""
    with (
        load(case.model.SerializeToString(), daemon.address, ways=(Way.PROGRAM,)) as session,
        load(GRU.SerializeToString(), daemon.address, ways=(Way.PROGRAM,)) as other,
    ):
        for _ in range(2):
            with pytest.raises(Unsupported, match=rf"inputs of the shapes \[.*crashes on it \({case.signal}\); run it"):
                session.run(case.fatal)
            # The same instance, because no model outlives its daemon.
            assert np.isfinite(session.run(case.harmless)["y"]).all()
            assert other.run(ones(x=(3, 2, 4)))["y"].shape == (3, 1, 2, 3)
