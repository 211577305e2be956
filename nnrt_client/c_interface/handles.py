"""Handles: what a C program holds in place of objects."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from nnrt_client.build.compilation import Compilation
from nnrt_client.c_interface.bindings import Bindings, Memory
from nnrt_client.model.model import Model
from nnrt_client.run.executor import Executor
from nnrt_client.run.result import OutputTooSmall, RunResult
from nnrt_client.session.fork import ModuleLock
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_client.tensors.tensor import Tensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import Shape

__all__ = [
    "NN_QuantParam",
    "NN_Tensor",
    "NN_TensorDesc",
    "OH_NNCompilation",
    "OH_NNExecutor",
    "OH_NNModel",
    "OH_NN_Memory",
]

# The shape of a scalar: a tensor can't be made of a description without one.
SCALAR_SHAPE: Shape = (1,)

ObjectT = TypeVar("ObjectT")

_destroying = ModuleLock()


class Handle(Generic[ObjectT]):
    """Stands for an object until it is destroyed. A destroyed one, None, and anything else are null handles."""

    __slots__ = ("_held",)

    def __init__(self, held: ObjectT) -> None:
        self._held: ObjectT | None = held

    @classmethod
    def find(cls, handle: object) -> ObjectT | None:
        """Give the object that a handle of this kind stands for; None for a null handle."""
        return handle._held if isinstance(handle, cls) else None

    @classmethod
    def of(cls, handle: object) -> ObjectT:
        """Give the object that a handle of this kind stands for. Raises InvalidParameter for a null handle."""
        held = cls.find(handle)
        if held is None:
            what = "a destroyed handle" if isinstance(handle, cls) else repr(handle)
            raise InvalidParameter(f"it is {what}; give an {cls.__name__} that lives", place=cls.__name__)
        return held

    @classmethod
    def take(cls, handle: object) -> ObjectT:
        """Give the object as `of` does and make the handle a null handle. Of several threads one gets the object."""
        with _destroying.itself:
            held = cls.of(handle)
            assert isinstance(handle, cls)
            handle._held = None
        return held


class NN_TensorDesc(Handle[TensorDesc]):  # noqa: N801  (C's names, here and below)
    """A tensor's description; destroy it, unless it is borrowed from a tensor."""

    __slots__ = ("is_borrowed",)

    def __init__(self, held: TensorDesc, *, is_borrowed: bool = False) -> None:
        super().__init__(held)
        self.is_borrowed = is_borrowed

    @classmethod
    def in_run(cls, desc: TensorDesc) -> "NN_TensorDesc":
        """The caller's own handle of what an executor takes or gives."""
        _shape_scalar(desc)
        return cls(desc)


class NN_Tensor(Handle[Tensor]):  # noqa: N801
    """A tensor: memory, and a description that it lends."""

    __slots__ = ("_desc",)

    def __init__(self, held: Tensor) -> None:
        super().__init__(held)
        self._desc = NN_TensorDesc(held.desc, is_borrowed=True)

    @classmethod
    def take(cls, handle: object) -> Tensor:
        """Take the tensor, and make the handle of the description that it lends a null handle, too."""
        held = super().take(handle)
        assert isinstance(handle, cls)
        NN_TensorDesc.take(handle._desc)
        return held

    @classmethod
    def lent_desc(cls, handle: object) -> NN_TensorDesc:
        """The description that a tensor lends until it is destroyed. Raises InvalidParameter for a null handle."""
        cls.of(handle)
        assert isinstance(handle, cls)
        return handle._desc


class NN_QuantParam(Handle[QuantParam]):  # noqa: N801
    """Quantization parameters."""

    __slots__ = ()


class OH_NNModel(Handle[Model]):  # noqa: N801
    """A model."""

    __slots__ = ()


class OH_NNCompilation(Handle[Compilation]):  # noqa: N801
    """A compilation."""

    __slots__ = ()


class OH_NNExecutor(Handle[Executor]):  # noqa: N801
    """An executor, what is bound to it, and the shapes that its outputs had last."""

    __slots__ = ("_bindings", "_shapes")

    def __init__(self, held: Executor) -> None:
        super().__init__(held)
        self._bindings = Bindings(held)
        self._shapes: Sequence[Shape] | None = None

    @classmethod
    def bindings(cls, handle: object) -> Bindings:
        """Return what is bound to an executor. Raises InvalidParameter for a null handle."""
        cls.of(handle)
        assert isinstance(handle, cls)
        return handle._bindings

    @classmethod
    def destroy(cls, handle: object) -> None:
        """Close the executor, and free what was allocated through it. Raises InvalidParameter for a null handle."""
        cls.take(handle).close()
        assert isinstance(handle, cls)
        handle._bindings.close()

    def output_shape(self, index: int) -> Shape:
        """The shape of an output in the last run, before it the declared one; after an output was too small for it, the
        one that it needs. Raises InvalidParameter for a null handle, and for an index that there isn't."""
        declared = self.of(self).output_desc(index).shape
        return (declared if self._shapes is None else self._shapes[index]) or SCALAR_SHAPE

    def take_shapes(self, result: object) -> None:
        """Know the shapes of a run that has ended, from its result or its error, if they say."""
        if isinstance(result, RunResult | OutputTooSmall) and result.shapes:
            self._shapes = result.shapes
        if isinstance(result, RunResult):
            for output in result:
                if isinstance(output, Tensor):
                    _shape_scalar(output.desc)


class OH_NN_Memory(Handle[Memory]):  # noqa: N801
    """Memory of a device, as API 9 has it: a struct whose fields never change, until it is destroyed."""

    __slots__ = ("_data",)

    def __init__(self, held: Memory) -> None:
        super().__init__(held)
        self._data = held.data  # It stays good, even if the executor is destroyed before.

    @property
    def data(self) -> memoryview | None:
        """Its bytes, to read and write; None once it has been destroyed."""
        return self._data if self.find(self) else None

    @property
    def length(self) -> int:
        """Number of its bytes; 0 once it has been destroyed."""
        return len(self._data) if self.find(self) else 0


def _shape_scalar(desc: TensorDesc) -> None:
    if desc.shape is None:
        desc.shape = SCALAR_SHAPE


def tensors_of(handles: Sequence[object] | None, what: str) -> list[Any]:
    """The tensors of an array of NN_Tensor, None for its null handles. Raises InvalidParameter for a null array."""
    if not isinstance(handles, Sequence):
        raise InvalidParameter(f"it is {handles!r}; give a sequence of NN_Tensor", place=what)
    return [NN_Tensor.find(handle) for handle in handles]
