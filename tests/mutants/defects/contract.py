"""Devices that don't do what they declare."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from wrapping import Progress, WrappedBackend, WrappedModel

from mutants.defect import backend, model
from nnrt_hdi.backend import Cancellation, DeviceInfo, DimRange, ModelConfig, PreparedModel, Support
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.part import Part
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import Array

LEVELS = ("contract",)
_UNSAID = (NodeType.LRN, NodeType.ERF)


@backend(*_UNSAID, levels=("contract", "operators"))
class SaysYesAndRefuses(WrappedBackend):
    """LRN and ERF are declared as supported, but compiling them fails."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if any(node.type in _UNSAID for node in graph.nodes):
            raise Unsupported("the compiler has no such operator")
        return super().prepare(graph, config, progress)


@backend(levels=("contract", "operators"))
class RefusesWithoutWords(WrappedBackend):
    """Nodes are refused with a blank reason."""

    def supported(self, graph: Graph) -> list[Support]:
        return [Support(" ") if node.type in _UNSAID else Support() for node in graph.nodes]


@backend(levels=("contract", "operators"))
class OneAnswerTooFew(WrappedBackend):
    """The answer for the last node is missing."""

    def supported(self, graph: Graph) -> list[Support]:
        return super().supported(graph)[:-1]


@backend(levels=LEVELS)
class AnswersThatChange(WrappedBackend):
    """Every second call of `supported` refuses all nodes."""

    def __init__(self, right: Any) -> None:
        super().__init__(right)
        self._asked = 0

    def supported(self, graph: Graph) -> list[Support]:
        self._asked += 1
        refused = "" if self._asked % 2 else "the engine is busy"
        return [Support(refused) for _ in graph.nodes]


@backend(levels=("contract", "operators", "graphs"))
class AnswersNeedConstants(WrappedBackend):
    """`supported` fails if a large constant is missing, which the contract allows."""

    def supported(self, graph: Graph) -> list[Support]:
        if any(constant.data is None for constant in graph.constants.values()):
            raise TypeError("'NoneType' object is not subscriptable")
        return super().supported(graph)


@backend(levels=LEVELS)
class UnknownExtensionsAccepted(WrappedBackend):
    """Unknown extensions are ignored."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        return super().prepare(graph, replace(config, extensions={}), progress)


@backend(levels=LEVELS)
class UnknownExtensionsAreFaults(WrappedBackend):
    """An unknown extension is reported as a fault of the device instead of an invalid parameter."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if config.extensions:
            raise KeyError(next(iter(config.extensions)))
        return super().prepare(graph, config, progress)


@backend(levels=LEVELS)
class ExtensionsOfRestoredModelsAccepted(WrappedBackend):
    """Unknown extensions are ignored when a model is restored."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return super().restore(parts, replace(config, extensions={}))


@model(levels=LEVELS)
class ProfilesNothing(WrappedModel):
    """The device declares the capability profiling, but profiles no run."""

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        raise Unsupported("this build has no profiler")


@model(levels=LEVELS)
class ProfilesWithoutOperators(WrappedModel):
    """A profile contains no operators."""

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        return super().profile(inputs, cancellation, outputs)[0], []


@model(levels=LEVELS)
class ProfilesAnotherRun(WrappedModel):
    """A profiled run computes with inputs of zeros."""

    def profile(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> tuple[list[Array], list[OperatorTime]]:
        return super().profile([np.zeros_like(array) for array in inputs], cancellation, outputs)


@model(levels=("contract", "caches"))
class ExportsNothing(WrappedModel):
    """The device declares the capability model_cache, but exports no model."""

    def export(self) -> Sequence[Part]:
        raise Unsupported("this build exports nothing")


@backend(levels=("contract", "operators"))
class DynamicModelsRefused(WrappedBackend):
    """The device declares the capability dynamic_input, but refuses models with dynamic dimensions."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if any(spec.is_dynamic for spec in graph.input_specs):
            raise Unsupported("every dimension must be known")
        return super().prepare(graph, config, progress)


@backend(levels=("contract", "float16"))
class Float16Refused(WrappedBackend):
    """The device declares the capability float16_precision, but refuses models that ask for it."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if config.enable_float16:
            raise Unsupported("the chip has no FLOAT16")
        return super().prepare(graph, config, progress)


@backend(levels=LEVELS)
class PerformanceModesRefused(WrappedBackend):
    """The device declares the capability performance_mode, but refuses every mode."""

    def describe(self) -> DeviceInfo:
        info = super().describe()
        return replace(info, capabilities=replace(info.capabilities, performance_mode=True))

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if config.mode.value:
            raise Unsupported("there is no governor for it")
        return super().prepare(graph, config, progress)


@backend(levels=LEVELS)
class PrioritiesRefused(WrappedBackend):
    """The device declares the capability priority, but refuses every priority."""

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        if config.priority.value:
            raise Unsupported("there is one queue")
        return super().prepare(graph, config, progress)


@backend(levels=LEVELS)
class NamelessDevice(WrappedBackend):
    """The device has no name."""

    def describe(self) -> DeviceInfo:
        return replace(super().describe(), device_name="", vendor_name="")


class _Given(WrappedModel):
    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return [self.given(array) for array in self.right.run(inputs, cancellation)]

    def given(self, array: Any) -> Any:
        raise NotImplementedError


@model(levels=("contract", "operators"))
class WiderOutputs(_Given):
    """FLOAT32 outputs are returned as FLOAT64."""

    def given(self, array: Any) -> Any:
        return array.astype(np.float64) if array.dtype == np.float32 else array


@model(levels=("contract", "operators"))
class LongIndices(_Given):
    """INT32 outputs are returned as INT64."""

    def given(self, array: Any) -> Any:
        return array.astype(np.int64) if array.dtype == np.int32 else array


@model(levels=("contract", "operators"))
class ScalarsAreVectors(_Given):
    """A scalar is returned with the shape [1]."""

    def given(self, array: Any) -> Any:
        return array.reshape(1) if array.ndim == 0 else array


@model(levels=("contract", "operators"))
class DimensionsOfOneDropped(_Given):
    """An output's first dimension is dropped if it is 1."""

    def given(self, array: Any) -> Any:
        return array[0] if array.ndim > 1 and array.shape[0] == 1 else array


@model(levels=("contract", "operators", "graphs"))
class SizesOfOneRow(WrappedModel):
    """The sizes of dynamic outputs are reported as one row."""

    def sizes(self, inputs: Sequence[Array]) -> Sizes:
        right = super().sizes(inputs)
        if not any(spec.is_dynamic for spec in self.outputs):
            return right
        outputs = tuple(spec.with_shape((1, *spec.shape[1:])) if spec.rank else spec for spec in right.outputs)
        return replace(right, outputs=outputs)


@model(levels=("contract", "quantized"))
class ParametersForgotten(WrappedModel):
    """The inputs and outputs of a prepared model have no quantization parameters."""

    def __init__(self, right: PreparedModel, graph: Graph | None) -> None:
        super().__init__(right, graph)
        self.inputs = tuple(replace(spec, quant=()) for spec in self.inputs)
        self.outputs = tuple(replace(spec, quant=()) for spec in self.outputs)


@model(levels=LEVELS)
class RangesFromMostToLeast(WrappedModel):
    """The smallest and the largest shape of an input are swapped."""

    def input_ranges(self) -> list[DimRange]:
        return [DimRange(both.max_dims, both.min_dims) for both in super().input_ranges()]


@model(levels=LEVELS)
class RangesOfTheFirstInput(WrappedModel):
    """Every input but the last is reported with the first one's shape range, and the last with none."""

    def input_ranges(self) -> list[DimRange]:
        return super().input_ranges()[:1] * (len(self.inputs) - 1)


@model(levels=LEVELS)
class RangesTooWide(WrappedModel):
    """More than 100 rows fail, although the shape range allows them."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        if any(spec.is_dynamic and array.shape[:1] > (100,) for spec, array in zip(self.inputs, inputs, strict=True)):
            raise InvalidParameter("there are more than 100 rows")
        return super().run(inputs, cancellation, outputs)


@model(levels=("contract", "values", "operators"))
class MistakesAreFaults(WrappedModel):
    """Mistakes of the client are reported as faults of the device."""

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        try:
            return super().run(inputs, cancellation, outputs)
        except InvalidParameter as error:
            raise RuntimeError("error 22") from error
