"""Signature of a compiled model: the inputs that it takes, and the outputs that it returns."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from nnrt_client.session.session import Session
from nnrt_client.tensors.device_buffer import DeviceBuffer, Elements, Kept, Stored
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_hdi import wire
from nnrt_hdi.backend import DimRange
from nnrt_hdi.errors import (
    InvalidParameter,
    NnrtError,
    NullPointer,
    OperationFailed,
    OutOfMemory,
    UnavailableDevice,
    Unsupported,
)
from nnrt_hdi.signals import raised_by_handler
from nnrt_hdi.tensor import Shape, TensorForm, TensorSpec, data_type_of, format_shape
from nnrt_hdi.v2 import prepared_model_pb2

# Limit of the bytes that describe a run in a packet of the local socket, without its elements.
_MOST_DESCRIBED_BYTES = 15 << 10
# Number of recent runs that decide how much memory is reserved for open outputs, and the most that is reserved.
_RECENT_RUNS = 32
_MOST_RESERVED_BYTES = 16 << 20

ItemT = TypeVar("ItemT")

Inputs = Sequence[ArrayLike | RunTensor[Any]] | Mapping[str, ArrayLike | RunTensor[Any]]


def listed(inputs: Iterable[ArrayLike | RunTensor[Any]]) -> list[Any]:
    """Return unnamed inputs as a list. Raise InvalidParameter for anything but a sequence, such as one array."""
    if isinstance(inputs, np.ndarray):
        one = f"{inputs.dtype.name}{format_shape(inputs.shape)}"
        raise InvalidParameter(f"inputs are one array, {one}; give a sequence of arrays, or a mapping by name")
    if not isinstance(inputs, Iterable):
        raise InvalidParameter(f"inputs are {inputs!r}; give a sequence of arrays, or a mapping by name")
    return list(inputs)


class _RecentSizes:
    """Largest recent size of an output whose shape is known only after a run.

    It is the largest of the last 32 to 64 runs. The next run reserves so many bytes for the output. An output that
    doesn't fit costs an additional call.
    """

    __slots__ = ("_before", "_largest", "_left")

    def __init__(self) -> None:
        self._before = self._largest = self._left = 0

    def largest_with(self, size_bytes: int) -> int:
        """Add a size and return the largest. Sizes above 16 MiB count only once, because they would waste memory."""
        if not self._left:
            self._before, self._largest, self._left = self._largest, 0, _RECENT_RUNS
        self._left -= 1
        if size_bytes <= _MOST_RESERVED_BYTES:
            self._largest = max(self._largest, size_bytes)
        return max(size_bytes, self._before, self._largest)


class Signature:
    """Inputs and outputs of a compiled model, with the checks of runs against them."""

    def __init__(
        self,
        session: Session,
        model_id: int,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        *,
        has_ranges: bool = True,
    ) -> None:
        """Create it. `has_ranges` is False if the device can't report which shapes it accepts."""
        self.inputs = inputs
        self.outputs = outputs
        self.input_forms = [TensorForm(spec) for spec in inputs]
        self.output_forms = [TensorForm(spec) for spec in outputs]
        self.session = session
        self.clock = session.clock
        self.model_id = model_id
        # Facts about tensors of the same kinds; see RunTensors.
        self.known_kinds: dict[Any, Any] = {}
        self._input_places = [_place("input", *item) for item in enumerate(inputs)]
        self._output_places = [_place("output", *item) for item in enumerate(outputs)]
        self._ranges: list[DimRange] | None = None
        self._has_ranges = has_ranges
        # Whether a run's description fits into one packet, which may have too many tensors.
        self.fits_packet = sum(map(_described_bytes, (*inputs, *outputs))) <= _MOST_DESCRIBED_BYTES
        self._expected_bytes = [max(form.size_bytes, 0) for form in self.output_forms]
        self._recent_sizes = [_RecentSizes() for _ in outputs]

    def require_here(self, buffer: DeviceBuffer, place: str) -> None:
        """Raise UnavailableDevice if the buffer's daemon has died, InvalidParameter if it isn't the model's daemon."""
        try:
            buffer.session.require_alive()
        except NnrtError as error:
            if raised_by_handler(error):
                raise
            raise error.at(place) from error
        if buffer.session is not self.session:
            raise InvalidParameter(
                f"it is on the {buffer.session.place}, the model on the {self.session.place}; copy it",
                place=place,
            )

    def require_alive(self) -> None:
        """Raise UnavailableDevice if the model's daemon has died."""
        self.session.require_alive()

    def arrays(self, inputs: Inputs) -> list[Elements] | None:
        """Return the inputs as arrays in the model's order, or None if one of them is a Tensor.

        Raises:
            InvalidParameter: The number of inputs is wrong, or one doesn't fit the model.
        """
        is_list = type(inputs) is list and len(inputs) == len(self.inputs)
        given: list[Any] = inputs if is_list else self.in_order(inputs)  # type: ignore[assignment]
        arrays: list[Elements] = []
        for one, form in zip(given, self.input_forms, strict=True):
            if type(one) is Kept:
                arrays.append(one)
                continue
            latest = form.latest
            if type(one) is np.ndarray and latest is not None and one.shape == latest.shape and one.dtype == form.dtype:
                arrays.append(one)
            elif any(isinstance(each, RunTensor) for each in given):
                return None
            else:
                arrays.append(self.fitting(len(arrays), one))
        return arrays

    def in_order(self, inputs: Inputs) -> list[Any]:
        """Return the inputs in the model's order. Raise InvalidParameter if their number or names are wrong."""
        if type(inputs) is list or not isinstance(inputs, Mapping):
            given = inputs if type(inputs) is list else listed(inputs)
            if len(given) != len(self.inputs):
                raise InvalidParameter(f"{len(given)} inputs were given; the model takes {len(self.inputs)}")
            return given
        names = [spec.name for spec in self.inputs]
        if set(inputs) != set(names):
            raise InvalidParameter(f"inputs are named {sorted(inputs)}; the model's are {sorted(names)}")
        return [inputs[name] for name in names]

    def require_output_count(self, outputs: Sequence[object]) -> None:
        """Raise InvalidParameter unless there are as many output tensors as the model has outputs."""
        if not isinstance(outputs, Sequence):
            raise InvalidParameter(f"outputs are {outputs!r}; give a sequence of Tensors, or None for new arrays")
        if len(outputs) != len(self.outputs):
            raise InvalidParameter(f"{len(outputs)} outputs were given; the model has {len(self.outputs)}")

    def fitting(self, index: int, given: ArrayLike | Stored) -> Elements:
        """Return an input as an array. Raise InvalidParameter if it doesn't fit the model."""
        if isinstance(given, Stored):
            return given
        form = self.input_forms[index]
        if type(given) is np.ndarray and given.dtype == form.dtype and form.of_run(given.shape) is not None:
            return given
        spec = form.spec
        try:
            array = np.asarray(given)
            data_type = data_type_of(array.dtype)
        except Exception as error:  # The object may have code of its own (`__array__`).
            if raised_by_handler(error):
                raise
            raise no_array(given, error, self.input_place(index)) from error
        if data_type != spec.data_type or form.of_run(array.shape) is None:
            dtype = spec.numpy_dtype
            how = "" if array.dtype == dtype else f"; convert it with .astype(np.{dtype.type.__name__})"
            raise InvalidParameter(
                f"it is {array.dtype.name}{format_shape(array.shape)}; the model takes {spec}{how}",
                place=self.input_place(index),
            )
        return array.astype(spec.numpy_dtype, copy=False)

    def result_form(self, index: int, output: Any) -> TensorForm:
        """Return the form of an output that a reply describes.

        Raises:
            OperationFailed: The reply is invalid, or doesn't fit the model.
        """
        try:
            form = wire.described_form(output, self.output_forms[index])
            if form is not None:
                return form
            spec, declared = wire.described_spec(output), self.outputs[index]
        except InvalidParameter as error:
            raise OperationFailed(error.message, place=self.output_place(index)) from error
        if spec.data_type != declared.data_type or not declared.accepts(spec.shape):
            raise OperationFailed(f"the device gave {spec}; the model says {declared}", place=self.output_place(index))
        return TensorForm(spec)

    def require_result_count(self, count: int) -> None:
        """Raise OperationFailed if the number of a reply's outputs is wrong, UnavailableDevice if it is 0."""
        if count != len(self.outputs):
            error = OperationFailed if count else UnavailableDevice
            raise error(f"the reply has {count} outputs; the model has {len(self.outputs)}")

    def expected_bytes(self, index: int) -> int:
        """Return the size of an output, or the largest recent size if only a run shows it.

        Before the first run, the latter is 0.
        """
        return self._expected_bytes[index]

    def expect(self, index: int, size_bytes: int) -> None:
        """Record the size that an output has in a run, unless the model fixes the size."""
        if self.output_forms[index].size_bytes < 0:
            self._expected_bytes[index] = self._recent_sizes[index].largest_with(size_bytes)

    def announced(self, outputs: Sequence[Any], index: int) -> TensorSpec:
        """Return the spec of an output whose bytes follow in chunks.

        Raises:
            OperationFailed: The spec is invalid.
            InvalidParameter: The output is larger than the daemon's limit for a tensor.
        """
        self.require_result_count(len(outputs))
        spec = self.result_form(index, outputs[index]).spec
        most = self.session.welcome.limits.tensor_bytes
        if spec.byte_size > most > 0:
            raise InvalidParameter(
                f"{spec.byte_size} bytes are announced; the daemon's limit of a tensor is {most}",
                place=self.output_place(index),
            )
        return spec

    def input_ranges(self) -> list[DimRange] | None:
        """Return the smallest and largest shape of each input, or None if the device doesn't report them.

        Only the first call asks the daemon.

        Raises:
            UnavailableDevice: The daemon can't be asked; also ConnectionFailed and TimedOut.
            InvalidParameter: The daemon's answer is invalid.
        """
        if self._ranges is None and self._has_ranges:  # Several threads may ask at first; they get the same answer.
            try:
                self._ranges = self._asked_ranges()
            except Unsupported:
                self._has_ranges = False
        return self._ranges

    def _asked_ranges(self) -> list[DimRange]:
        session = self.session
        reply = session.call(
            "PreparedModel.GetInputDimRanges",
            prepared_model_pb2.GetInputDimRangesRequest(model_id=self.model_id),
            session.settings.query_timeout_s,
        )
        ranges = wire.dim_ranges(reply)
        if len(ranges) != len(self.inputs) or any(len(found.min_dims) != len(found.max_dims) for found in ranges):
            raise InvalidParameter(
                f"it gives {ranges} as the ranges of {len(self.inputs)} inputs; each must have as many smallest as"
                " largest dimensions",
                place=session.place,
            )
        return ranges

    def require_in_range(self, index: int, shape: Shape) -> None:
        """Raise InvalidParameter if the device doesn't accept this shape for an input."""
        if any(dim < 0 for dim in shape):
            raise InvalidParameter(
                f"the shape is {format_shape(shape)}; a run needs every dimension", place=self.input_place(index)
            )
        ranges = self.input_ranges()
        if ranges is None:
            return
        least, most = ranges[index].min_dims, ranges[index].max_dims
        if len(shape) != len(least) or any(
            not low <= dim <= high for low, dim, high in zip(least, shape, most, strict=True)
        ):
            raise InvalidParameter(
                f"the shape is {format_shape(shape)}; the device takes {format_shape(least)} to {format_shape(most)}",
                place=self.input_place(index),
            )

    def input_place(self, index: int) -> str:
        """Return the name of an input in error messages."""
        return self._input_places[index]

    def output_place(self, index: int) -> str:
        """Return the name of an output in error messages."""
        return self._output_places[index]


def item_at(items: Sequence[ItemT], index: int, what: str) -> ItemT:
    """Return the item at an index. Raise InvalidParameter for an invalid index; `what` names the items in it."""
    try:
        position = operator.index(index)
    except TypeError as error:
        raise InvalidParameter(f"{what} index is {index!r}; give a whole number") from error
    if not 0 <= position < len(items):
        raise InvalidParameter(f"{what} index is {index}; use 0..{len(items) - 1}")
    return items[position]


def no_array(given: object, error: Exception, place: str) -> Exception:
    """Return the error for an input that can't be converted to an array."""
    if given is None:
        return NullPointer("it is None; give an array or a tensor", place=place)
    if isinstance(error, NnrtError):
        return error.at(place)
    if isinstance(error, MemoryError):
        return OutOfMemory("this host has no memory left", place=place)
    return InvalidParameter(f"no array can be made of {type(given).__name__}: {error!r}", place=place)


def _place(what: str, index: int, spec: TensorSpec) -> str:
    return f"{what} {index}" + (f" {spec.name!r}" if spec.name else "")


def _described_bytes(spec: TensorSpec) -> int:
    """Return an upper bound of the bytes that a frame needs for a tensor, apart from its elements."""
    return 5 * len(spec.shape) + 60
