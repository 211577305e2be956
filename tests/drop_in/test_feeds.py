"""Valid and invalid inputs: both runtimes accept the same, and refuse the same with the same exceptions."""

import queue
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper
from runs_left import runs_left

import nnrt_client.onnxruntime as ours
from drop_in.both_runtimes import outcome, require_equal, require_same
from nnrt_client import NnrtError

AnyArray = NDArray[Any]
Make = Callable[[AnyArray], Any]

DTYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint64", "bool"]


class Wrapped:
    """Object with `__array__`."""

    def __init__(self, own: AnyArray) -> None:
        self._own = own

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return self._own


def read_only(good: AnyArray) -> AnyArray:
    good.flags.writeable = False
    return good


def unaligned(good: AnyArray) -> AnyArray:
    return np.frombuffer(b"\0" + good.tobytes(), good.dtype, len(good), 1)


# Three valid elements: 1, 0 and 1.
FEEDS: dict[str, Make] = {
    **{f"array of {name}": partial(np.ndarray.astype, dtype=name) for name in (*DTYPES, "uint16", "uint32")},
    "array of complex": lambda good: good.astype(np.complex64),
    "array of long double": lambda good: good.astype(np.longdouble),
    "array of times": lambda _: np.array([1, 0, 1], "M8[s]"),
    "array of records": lambda _: np.zeros(3, [("a", "f4")]),
    "array of texts": lambda _: np.array(["1", "0", "1"]),
    "array of bytes": lambda _: np.array([b"1", b"0", b"1"]),
    "array of objects": lambda _: np.array([1, 0, 1], object),
    "array of None": lambda _: np.array([None, None, None], object),
    "integers": lambda _: [1, 0, 1],
    "whole numbers": lambda _: [1.0, 0.0, 1.0],
    "truth values": lambda _: [True, False, True],
    "digits": lambda _: ["1", "0", "1"],
    "scalars": lambda good: list(good),
    "arrays": lambda good: [np.array(one) for one in good],
    "decimals": lambda _: [Decimal(1), Decimal(0), Decimal(1)],
    "no elements": lambda _: [],
    "nested": lambda _: [[1, 0, 1]],
    "ragged": lambda _: [[1], [1, 2], 3],
    "words": lambda _: ["a", "b", "c"],
    "None among numbers": lambda _: [None, 1, 0],
    "not a number": lambda _: [float("nan"), 1.0, 0.0],
    "negative": lambda _: [-1, 0, 1],
    "large": lambda _: [2**40, 0, 1],
    "huge": lambda _: [2**70, 0, 1],
    "None": lambda _: None,
    "an integer": lambda _: 1,
    "a number": lambda _: 1.5,
    "a text": lambda _: "abc",
    "a set": lambda _: {0, 1},
    "a range": lambda _: range(3),
    "a generator": lambda _: (at for at in range(3)),
    "not contiguous": lambda good: np.repeat(good, 2)[::2],
    "reversed": lambda good: good[::-1],
    "broadcast": lambda good: np.broadcast_to(good[0], 3),
    "read-only": read_only,
    "unaligned": unaligned,
    "no rows": lambda good: good[:0],
    "more rows": lambda good: np.ones(5, good.dtype),
    "0-d": lambda good: np.array(good[0]),
    "2-d": lambda good: good[None],
    "masked": np.ma.array,
    "recarray": lambda good: good.view(np.recarray),
    "a value": lambda good: good,  # As OrtValue, see below.
}

# Inputs that nnrt accepts and ONNX Runtime refuses, and their results.
ALSO_TAKEN: dict[str, Make] = {
    "a tuple": lambda _: (1, 0, 1),
    "what has __array__": Wrapped,
    "what has a buffer": lambda good: good.data,
}

# Inputs that would silently lose information.
FRACTIONS: dict[str, Any] = {
    "list": [1.5, 0.25, 1.0],
    "mixed": [1, 0.5, True],
    "scalars": [np.float32(1.5), np.float32(0), np.float32(1)],
    "decimals": [Decimal("1.5"), Decimal(0), Decimal(1)],
    "ratios": [Fraction(1, 2), Fraction(0), Fraction(1)],
}


def both(dtype: str, dims: list[int | None]) -> tuple[Any, ours.InferenceSession]:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "same",
        [helper.make_tensor_value_info("x", element, dims)],
        [helper.make_tensor_value_info("y", element, dims)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return theirs, ours.InferenceSession(model, providers=[("NnrtExecutionProvider", {"cache": "0"})])


def fed(make: Make, dtype: str) -> Callable[[Any, Any], Any]:
    """Run with newly made inputs for each of the two sessions, because some can be read only once."""

    def call(module: Any, session: Any) -> Any:
        given = make(np.array([1, 0, 1], dtype))
        return session.run(
            None, {"x": module.OrtValue.ortvalue_from_numpy(given) if make is FEEDS["a value"] else given}
        )

    return call


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_is_taken(dtype: str) -> None:
    """Both give the same results; an error message names the input."""
    for dim in (None, 3):
        theirs, mine = both(dtype, [dim])
        with mine:
            for kind, make in FEEDS.items():
                try:
                    require_same(fed(make, dtype), theirs, mine)
                except AssertionError as error:
                    raise AssertionError(f"{kind}, {dim}: {error}") from error
                given = outcome(fed(make, dtype), ours, mine)
                assert not isinstance(given, Exception) or "'x'" in str(given) or "input: x " in str(given), kind


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_different(dtype: str) -> None:
    """nnrt also accepts arrays other than NumPy's, respects byte orders, and doesn't truncate fractions."""
    good, swapped = np.array([1, 0, 1], dtype), np.array([1, 0, 1], np.dtype(dtype).newbyteorder())
    theirs, mine = both(dtype, [None])
    with mine:
        for make in ALSO_TAKEN.values():
            assert isinstance(outcome(fed(make, dtype), onnxruntime, theirs), RuntimeError)
            require_equal(mine.run(None, {"x": make(good)}), [good])
        require_equal(mine.run(None, {"x": swapped}), [good])
        if good.dtype.kind in "iu":
            for given in FRACTIONS.values():
                with pytest.raises(
                    NnrtError, match=r"^\[ONNXRuntimeError\].*Unexpected input data type.*'x'.*not whole"
                ):
                    mine.run(None, {"x": given})


def test_a_scalar() -> None:
    """A scalar has no dimensions here; ONNX Runtime accepts any."""
    theirs, mine = both("float32", [])
    with mine:
        require_same(fed(lambda good: np.array(good[0]), "float32"), theirs, mine)
        require_same(fed(lambda _: 1.5, "float32"), theirs, mine)
        require_equal(mine.run(None, {"x": np.float32(2)}), [np.array(2, np.float32)])
        assert outcome(fed(FEEDS["integers"], "float32"), onnxruntime, theirs)[0].shape == (3,)
        with pytest.raises(NnrtError, match="Invalid rank for input: x Got: 1 Expected: 0"):
            mine.run(None, {"x": [1, 0, 1]})


X = np.zeros(3, np.float32)
RUNS: dict[str, Callable[[Any, Any], Any]] = {
    "no input": lambda _, s: s.run(None, {}),
    "one too many": lambda _, s: s.run(None, {"x": X, "z": X}),
    "one too many, of None": lambda _, s: s.run(None, {"x": X, "z": None}),
    "another name": lambda _, s: s.run(None, {"z": X}),
    "a name that is none": lambda _, s: s.run(None, {"x": X, 3: X}),
    "names of bytes": lambda _, s: s.run(None, {b"x": X}),
    "an output that is none": lambda _, s: s.run([None], {"x": X}),
    "an output's number": lambda _, s: s.run([0], {"x": X}),
    "an output's name": lambda _, s: s.run("y", {"x": X}),
    "a tuple of outputs": lambda _, s: s.run(("y",), {"x": X}),
    "options that are none": lambda _, s: s.run(None, {"x": X}, "fast"),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
def test_names(run: Callable[[Any, Any], Any]) -> None:
    theirs, mine = both("float32", [None])
    with mine:
        require_same(run, theirs, mine)


def test_no_mapping() -> None:
    """ONNX Runtime fails to find `keys`; nnrt says what to give."""
    theirs, mine = both("float32", [None])
    with mine:
        for feed in (None, [("x", X)], X):
            with pytest.raises(AttributeError):
                theirs.run(None, feed)
            with pytest.raises(TypeError, match="give a mapping of names to arrays"):
                mine.run(None, feed)  # type: ignore[arg-type]


# ---- code of the application that raises


class Odd:
    """Object whose `__array__` and other attributes raise."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        raise self._error


class OddAttributes:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


class Own(Exception):
    """Exception of the application."""


@pytest.mark.parametrize("own", [KeyError, Own, TypeError, ValueError, LookupError])
def test_errors_of_what_is_given(own: type[Exception]) -> None:
    """An input's exception becomes the cause of nnrt's exception, and the run is released."""
    error = own("why")
    told: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    _, mine = both("float32", [None])
    with mine:
        for given in (Odd(error), [Odd(error)], OddAttributes(error)):
            with pytest.raises(RuntimeError, match="input 'x'") as raised:
                mine.run(None, {"x": given})
            assert isinstance(raised.value, NnrtError)
            assert raised.value.__cause__ is error
            mine.run_async(None, {"x": given}, lambda *call: told.put(call), None)
            assert "input 'x'" in told.get(timeout=30)[2]
        assert not runs_left()
        require_equal(mine.run(None, {"x": X}), [X])


def test_an_interrupt_goes_through() -> None:
    _, mine = both("float32", [None])
    with mine:
        for given in (Odd(KeyboardInterrupt()), OddAttributes(KeyboardInterrupt())):
            with pytest.raises(KeyboardInterrupt):
                mine.run(None, {"x": given})
        assert not runs_left()
