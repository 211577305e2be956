"""Handles, by which C programs refer to objects."""

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

# Shape of a scalar. NNRt can't make a tensor of a description without dimensions.
SCALAR_SHAPE: Shape = (1,)

ObjectT = TypeVar("ObjectT")

_destroying = ModuleLock()


class Handle(Generic[ObjectT]):
    """Reference to an object. A destroyed handle, None, and an object of another class count as null handles."""

    __slots__ = ("_object",)

    def __init__(self, target: ObjectT) -> None:
        self._object: ObjectT | None = target

    @classmethod
    def find(cls, handle: object) -> ObjectT | None:
        """Return the object of a handle of this class, or None for a null handle."""
        return handle._object if isinstance(handle, cls) else None

    @classmethod
    def require(cls, handle: object) -> ObjectT:
        """Return the object of a handle of this class. Raise InvalidParameter for a null handle."""
        target = cls.find(handle)
        if target is None:
            what = "a destroyed handle" if isinstance(handle, cls) else repr(handle)
            raise InvalidParameter(f"it is {what}; give an {cls.__name__} that lives", place=cls.__name__)
        return target

    @classmethod
    def take(cls, handle: object) -> ObjectT:
        """Return the object as `require` does, and make the handle a null handle. Only one thread succeeds."""
        with _destroying.itself:
            target = cls.require(handle)
            assert isinstance(handle, cls)
            handle._object = None
        return target


class NN_TensorDesc(Handle[TensorDesc]):  # noqa: N801  (C's names, here and below)
    """Handle of a tensor's description. The program destroys it, unless it is borrowed from a tensor."""

    __slots__ = ("is_borrowed",)

    def __init__(self, target: TensorDesc, *, is_borrowed: bool = False) -> None:
        super().__init__(target)
        self.is_borrowed = is_borrowed

    @classmethod
    def from_desc(cls, desc: TensorDesc) -> "NN_TensorDesc":
        """Return a handle, owned by the caller, of the description of an executor's input or output."""
        _shape_scalar(desc)
        return cls(desc)


class NN_Tensor(Handle[Tensor]):  # noqa: N801
    """Handle of a tensor. It owns the handle of the tensor's description, which programs only borrow."""

    __slots__ = ("_desc",)

    def __init__(self, target: Tensor) -> None:
        super().__init__(target)
        self._desc = NN_TensorDesc(target.desc, is_borrowed=True)

    @classmethod
    def take(cls, handle: object) -> Tensor:
        """Return the tensor as `require` does, and make its handle and that of its description null handles."""
        target = super().take(handle)
        assert isinstance(handle, cls)
        NN_TensorDesc.take(handle._desc)
        return target

    @classmethod
    def own_desc(cls, handle: object) -> NN_TensorDesc:
        """Return the description that belongs to a tensor. Raise InvalidParameter for a null handle."""
        cls.require(handle)
        assert isinstance(handle, cls)
        return handle._desc


class NN_QuantParam(Handle[QuantParam]):  # noqa: N801
    """Handle of quantization parameters."""

    __slots__ = ()


class OH_NNModel(Handle[Model]):  # noqa: N801
    """Handle of a model."""

    __slots__ = ()


class OH_NNCompilation(Handle[Compilation]):  # noqa: N801
    """Handle of a compilation."""

    __slots__ = ()


class OH_NNExecutor(Handle[Executor]):  # noqa: N801
    """Handle of an executor, with its bindings and the last shapes of its outputs."""

    __slots__ = ("_bindings", "_shapes")

    def __init__(self, target: Executor) -> None:
        super().__init__(target)
        self._bindings = Bindings(target)
        self._shapes: Sequence[Shape] | None = None

    @classmethod
    def bindings(cls, handle: object) -> Bindings:
        """Return the bindings of an executor. Raise InvalidParameter for a null handle."""
        cls.require(handle)
        assert isinstance(handle, cls)
        return handle._bindings

    @classmethod
    def destroy(cls, handle: object) -> None:
        """Close the executor and free memory allocated through it. Raise InvalidParameter for a null handle."""
        cls.take(handle).close()
        assert isinstance(handle, cls)
        handle._bindings.close()

    def output_shape(self, index: int) -> Shape:
        """Return the last shape of an output.

        It is the declared shape before the first run, and the needed shape after a run whose memory was too small.

        Raises:
            InvalidParameter: the handle is null, or the index doesn't exist.
        """
        declared = self.require(self).output_desc(index).shape
        return (declared if self._shapes is None else self._shapes[index]) or SCALAR_SHAPE

    def store_shapes(self, result: object) -> None:
        """Store the output shapes of a run that has ended, if its result or its error has them."""
        if isinstance(result, RunResult | OutputTooSmall) and result.shapes:
            self._shapes = result.shapes
        if isinstance(result, RunResult):
            for output in result:
                if isinstance(output, Tensor):
                    _shape_scalar(output.desc)


class OH_NN_Memory(Handle[Memory]):  # noqa: N801
    """Handle of API 9's memory for an input or output. Its fields don't change until it is destroyed."""

    __slots__ = ("_data",)

    def __init__(self, target: Memory) -> None:
        super().__init__(target)
        self._data = target.data  # The view stays valid even if the executor is destroyed first.

    @property
    def data(self) -> memoryview | None:
        """Writable view of the bytes, or None after the handle has been destroyed."""
        return self._data if self.find(self) else None

    @property
    def length(self) -> int:
        """Size in bytes, or 0 after the handle has been destroyed."""
        return len(self._data) if self.find(self) else 0


def _shape_scalar(desc: TensorDesc) -> None:
    if desc.shape is None:
        desc.shape = SCALAR_SHAPE


def tensors_of(handles: Sequence[object] | None, what: str) -> list[Any]:
    """Return the tensors of NN_Tensor handles, None for null handles. Raise InvalidParameter for a null array."""
    if not isinstance(handles, Sequence):
        raise InvalidParameter(f"it is {handles!r}; give a sequence of NN_Tensor", place=what)
    return [NN_Tensor.find(handle) for handle in handles]
