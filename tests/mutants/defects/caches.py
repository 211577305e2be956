"""Compiled models that are restored wrongly, or from invalid files."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from nnrt_backend_reference.program import KIND
from wrapping import Progress, WrappedBackend, WrappedModel

from mutants.defect import backend, model
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import ActivationType, Format
from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.files.exported_graph import read_exported
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array

LEVELS = ("caches",)


class _Remembering(WrappedBackend):
    """Backend that remembers the latest compiled model."""

    latest: tuple[Graph, ModelConfig] | None = None

    def prepare(self, graph: Graph, config: ModelConfig, progress: Progress) -> PreparedModel:
        self.latest = graph, config
        return super().prepare(graph, config, progress)

    def again(self) -> PreparedModel:
        """Compile the latest model again. Raises InvalidFile if there is none."""
        if self.latest is None:
            raise InvalidFile("this is no model of the reference backend")
        return super().prepare(*self.latest, lambda fraction: None)


@backend(levels=LEVELS)
class AnythingRestored(_Remembering):
    """Any file is restored as the latest compiled model."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return self.again()


@backend(levels=LEVELS)
class DamageIgnored(_Remembering):
    """A damaged file is restored as the latest compiled model."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        try:
            return super().restore(parts, config)
        except InvalidFile:
            return self.again()


@backend(levels=LEVELS)
class KnownByItsSize(WrappedBackend):
    """A file is taken for an earlier one of the same size."""

    def __init__(self, right: Any) -> None:
        super().__init__(right)
        self._known: dict[tuple[int, ...], Sequence[Part]] = {}

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        known = self._known.setdefault(tuple(part.data.nbytes for part in parts), parts)
        return super().restore(known, config)


class _Read(WrappedBackend):
    """Backend that changes a model when it restores it; `read` returns the changed graph and settings."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        super().restore(parts, config).close()  # Raises the errors of the right backend.
        graph, enable_float16 = read_exported(KIND, parts)
        return super().prepare(*self.read(graph, replace(config, enable_float16=enable_float16)), lambda fraction: None)

    def read(self, graph: Graph, config: ModelConfig) -> tuple[Graph, ModelConfig]:
        raise NotImplementedError


@backend(levels=LEVELS)
class ConstantsForgotten(_Read):
    """An export has no constants; they are restored as zeros."""

    def read(self, graph: Graph, config: ModelConfig) -> tuple[Graph, ModelConfig]:
        def zeros(constant: Constant) -> Constant:
            # Keeps sizes and axes, which are part of the graph.
            if constant.data is None or constant.data.dtype.kind == "i":
                return constant
            return Constant.of(np.zeros_like(constant.data))

        return graph.with_constants({at: zeros(constant) for at, constant in graph.constants.items()}), config


@backend(levels=LEVELS)
class Float16Forgotten(_Read):
    """A model that computes in FLOAT16 is restored as one that doesn't."""

    def read(self, graph: Graph, config: ModelConfig) -> tuple[Graph, ModelConfig]:
        return graph, replace(config, enable_float16=False)


@backend(levels=LEVELS)
class ActivationsForgotten(_Read):
    """An export has neither fused activations nor the types of others."""

    def read(self, graph: Graph, config: ModelConfig) -> tuple[Graph, ModelConfig]:
        def plain(attrs: Any) -> Any:
            known = "activation_type" in attrs
            return {**attrs, "activation_type": ActivationType.NO_ACTIVATION} if known else attrs

        nodes = tuple(replace(node, attrs=plain(node.attrs)) for node in graph.nodes)
        return replace(graph, nodes=nodes), config


@backend(levels=LEVELS)
class NamesAndFormatsForgotten(_Read):
    """A restored model has no names and no formats."""

    def read(self, graph: Graph, config: ModelConfig) -> tuple[Graph, ModelConfig]:
        return graph.with_tensors([replace(spec, name="", format=Format.NONE) for spec in graph.tensors]), config


@model(levels=LEVELS)
class ExportedOnce(WrappedModel):
    """A model can be exported only once."""

    is_gone = False

    def export(self) -> Sequence[Part]:
        if self.is_gone:
            raise RuntimeError("the blob was taken")
        self.is_gone = True
        return super().export()


@model(levels=LEVELS)
class NotExportedAfterARun(WrappedModel):
    """A model that has run can't be exported."""

    has_run = False

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        self.has_run = True
        return super().run(inputs, cancellation, outputs)

    def export(self) -> Sequence[Part]:
        if self.has_run:
            raise RuntimeError("the model is in use")
        return super().export()


class _FixedAtFirst(WrappedModel):
    shapes: Sequence[tuple[int, ...]] = ()

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        self.shapes = self.shapes or [array.shape for array in inputs]
        if [array.shape for array in inputs] != self.shapes:
            raise RuntimeError("the shapes are fixed")
        return super().run(inputs, cancellation, outputs)


@backend(levels=LEVELS)
class RestoredWithFixedShapes(WrappedBackend):
    """A restored dynamic model accepts only the shapes of its first run."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return _FixedAtFirst(super().restore(parts, config), None)


@backend(levels=LEVELS)
class DamageIsAFault(WrappedBackend):
    """A damaged file is reported as a fault of the device."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        try:
            return super().restore(parts, config)
        except InvalidFile as error:
            raise ValueError("bad magic") from error


@backend(levels=LEVELS)
class PartsBeyondTheLastIgnored(WrappedBackend):
    """Superfluous parts of a file are ignored."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        for count in range(1, len(parts)):
            with suppress(InvalidFile):
                return super().restore(parts[:count], config)
        return super().restore(parts, config)


class _Owned(WrappedModel):
    living: dict[bytes, "_Owned"] = {}  # noqa: RUF012  # That is the defect.
    original: "_Owned | None" = None
    is_closed = False

    def export(self) -> Sequence[Part]:
        parts = super().export()
        self.living[parts[0].sha256] = self
        return parts

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        if self.original is not None and self.original.is_closed:
            raise RuntimeError("the weights were freed")
        return super().run(inputs, cancellation, outputs)

    def close(self) -> None:
        self.is_closed = True
        super().close()


@backend(levels=LEVELS)
class RestoredOnTheOriginal(WrappedBackend):
    """A restored model fails after the exported model has been closed, because it uses its memory."""

    def __init__(self, right: Any) -> None:
        super().__init__(right, _Owned)

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        made = super().restore(parts, config)
        assert isinstance(made, _Owned)
        made.original = _Owned.living.get(parts[0].sha256)
        return made


class _FirstExport(WrappedModel):
    first: Sequence[Part] | None = None

    def export(self) -> Sequence[Part]:
        _FirstExport.first = _FirstExport.first or super().export()
        return _FirstExport.first


@backend(levels=LEVELS)
class OneBufferForExports(WrappedBackend):
    """Every model is exported as the first exported model."""

    def __init__(self, right: Any) -> None:
        super().__init__(right, _FirstExport)
