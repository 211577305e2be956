"""Program in a session of ONNX Runtime, ready to run."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from nnrt_onnx_lowering.value import AnyArray

from nnrt_backend_onnxruntime.deadlines import Deadlines
from nnrt_backend_onnxruntime.model import StoppableRun
from nnrt_backend_onnxruntime.profiling import Reopen, profile_run
from nnrt_backend_onnxruntime.programs.first_runs import FirstRuns, Shapes
from nnrt_backend_onnxruntime.programs.opening import TryRun
from nnrt_backend_onnxruntime.programs.sizes import Sizes
from nnrt_backend_onnxruntime.session import release_memory
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, too_much
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.packed_values import PackedSpec, shape_of_strings
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes as RunSizes
from nnrt_hdi.tensor import Array, Shape, TensorSpec

_MOST_SHAPES = 512
# The bytes of a string in ONNX Runtime, without its text if that is long.
_STRING_BYTES = 32
# The bytes of a string in Python and in ONNX Runtime, without its text; and how often the text is there at most: Python
# takes up to 4 bytes for a character.
_HELD_BYTES = 128
_HELD_TEXTS = 6


class ProgramModel(PreparedModel):
    """Program that runs a session. Outputs are in memory that ONNX Runtime allocates."""

    def __init__(
        self,
        session: Any,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        reads_in_place: frozenset[int],
        sizes: Sizes,
        weights: Mapping[str, AnyArray],
        parts: Sequence[Part],
        max_tensor_bytes: int,
        deadlines: Deadlines,
        reopen: Reopen,
        first_runs: FirstRuns | None,
        try_run: TryRun | None,
    ) -> None:
        """Wrap an open session.

        Args:
            session: The session.
            inputs: The inputs of a run.
            outputs: The outputs of a run.
            reads_in_place: The inputs that may be in memory that the client writes to.
            sizes: The sizes of tensors, as far as they follow from the inputs' shapes.
            weights: The large constants, which have to live as long as the session.
            parts: What `export` returns.
            max_tensor_bytes: The most bytes that a tensor may have.
            deadlines: Ends runs at their deadlines.
            reopen: Opens another session of the same model, with a profile.
            first_runs: The runs that have been tried; None if none is tried.
            try_run: Tries a run in another process; None if none is tried.
        """
        self.inputs, self.outputs, self.reads_in_place = inputs, outputs, reads_in_place
        self.session = session
        self._sizes = sizes
        self._weights = weights
        self._parts = parts
        self._max_tensor_bytes = max_tensor_bytes
        self._deadlines = deadlines
        self._reopen = reopen
        self._first_runs = first_runs
        self._try_run = try_run
        self._usual_sizes = super().sizes(())
        # The latest shapes of inputs that fit and that ONNX Runtime computes without a crash, with the runs' sizes.
        self._shapes: OrderedDict[Shapes, RunSizes] = OrderedDict()
        self._names = [spec.name for spec in self.inputs]
        self._output_names = [spec.name for spec in self.outputs]
        # The types of inputs that are tensors of strings, by position; of most programs there are none.
        self._strings = {at: spec.value for at, spec in enumerate(inputs) if isinstance(spec, PackedSpec)}
        self._returned: list[Callable[[Any], Array]] = [
            partial(self._packed, spec) if isinstance(spec, PackedSpec) else partial(self._require_declared, spec)
            for spec in outputs
        ]

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        cancellation.check()
        if self._strings:
            inputs = self._with_strings(inputs)
        if (shapes := tuple([array.shape for array in inputs])) not in self._shapes:
            self._admit(shapes, inputs, cancellation)
        with StoppableRun(cancellation, self._deadlines) as options:
            results = self.session.run(self._output_names, dict(zip(self._names, inputs, strict=True)), options)
        return [returned(result) for returned, result in zip(self._returned, results, strict=True)]

    def sizes(self, inputs: Sequence[Array]) -> RunSizes:
        """Return the sizes of a run. If it must be tried, they include the trial's copy of the model and inputs."""
        shapes = self._shapes_with_strings(inputs) if self._strings else tuple([array.shape for array in inputs])
        if (sizes := self._shapes.get(shapes)) is not None and not self._strings:
            return sizes
        more_bytes = sum(_unpacked_bytes(shapes[at], inputs[at].nbytes) for at in self._strings)
        if sizes is None:
            sizes = self._sizes_of(shapes)
            if self._first_runs is not None and not self._first_runs.is_known(shapes):
                more_bytes += sum(part.size_bytes for part in self._parts) + sum(array.nbytes for array in inputs)
        return replace(sizes, peak_bytes=sizes.peak_bytes + more_bytes) if more_bytes else sizes

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        return profile_run(self, self._reopen, inputs, cancellation, outputs)

    def export(self) -> list[Part]:
        return list(self._parts)

    def close(self) -> None:
        self.session = None
        self._weights = {}
        release_memory()

    def _admit(self, shapes: Shapes, inputs: Sequence[Array], cancellation: Cancellation) -> None:
        """Check inputs whose shapes may be new, and try the run. Raises what `run` raises."""
        sizes = self._sizes_of(shapes)
        if self._first_runs is not None and self._try_run is not None:
            named = dict(zip(self._names, inputs, strict=True))
            self._first_runs.require(shapes, partial(self._try_run, named, cancellation), cancellation)
        self._shapes[shapes] = sizes
        while len(self._shapes) > _MOST_SHAPES:
            self._shapes.popitem(last=False)

    def _sizes_of(self, shapes: Shapes) -> RunSizes:
        return replace(self._usual_sizes, multiply_adds=self._sizes.require_run_fits(shapes))

    def _shapes_with_strings(self, inputs: Sequence[Array]) -> Shapes:
        """Return the shapes of the inputs, those of strings as their packed forms say.

        Raises:
            InvalidParameter: A shape is not the model's, or the packed form is too short for it.
            OutOfMemory: There are too many strings.
        """
        shapes = [array.shape for array in inputs]
        for at, value in self._strings.items():
            with self._naming(at):
                shapes[at] = shape_of_strings(inputs[at])
                value.require_shape(shapes[at])
                if (size_bytes := _STRING_BYTES * math.prod(shapes[at])) > self._max_tensor_bytes:
                    raise too_much(f"its strings need {size_bytes} bytes", self._max_tensor_bytes)
        return tuple(shapes)

    def _with_strings(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the inputs with strings in place of their packed forms. Raise InvalidParameter if one is none."""
        unpacked = list(inputs)
        for at, value in self._strings.items():
            with self._naming(at):
                unpacked[at] = value.unpack(inputs[at])
        return unpacked

    @contextmanager
    def _naming(self, at: int) -> Iterator[None]:
        """Name an input in the errors of the block."""
        try:
            yield
        except NnrtError as error:
            raise error.at(f"input {self._names[at]!r}") from error

    def _packed(self, spec: PackedSpec, result: Any) -> Array:
        """Return the packed form of an output. Raise OperationFailed if it isn't of the declared type."""
        try:
            packed = spec.value.pack(result)
        except InvalidParameter as error:
            raise OperationFailed(error.message, place=f"output {spec.name!r}") from error
        return self._require_declared(spec, packed)

    def _require_declared(self, spec: TensorSpec, result: Any) -> Array:
        """Return an output of a run. Raise OperationFailed if its type or shape isn't the declared one."""
        if not isinstance(result, np.ndarray) or result.dtype != spec.numpy_dtype or not spec.accepts(result.shape):
            shown = f"{result.dtype}{list(result.shape)}" if isinstance(result, np.ndarray) else type(result).__name__
            raise OperationFailed(f"it is {shown}, the model says {spec}", place=f"output {spec.name!r}")
        if result.nbytes > self._max_tensor_bytes:
            raise too_much(f"it has {result.nbytes} bytes", self._max_tensor_bytes, place=f"output {spec.name!r}")
        return result


def _unpacked_bytes(shape: Shape, packed_bytes: int) -> int:
    """Return the most bytes that unpacked strings take."""
    return _HELD_BYTES * math.prod(shape) + _HELD_TEXTS * packed_bytes
