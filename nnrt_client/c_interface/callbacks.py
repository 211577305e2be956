"""Callbacks of asynchronous runs, with the parameters that they have in C."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nnrt_client.c_interface.adapter import code_of
from nnrt_client.c_interface.handles import NN_Tensor, OH_NNExecutor
from nnrt_client.enums import ReturnCode
from nnrt_hdi.errors import InvalidParameter, NnrtError

__all__ = [
    "NN_OnRunDone",
    "NN_OnServiceDied",
]

# (user_data, code, outputs), where outputs is the argument of RunAsync.
NN_OnRunDone = Callable[[Any, ReturnCode, Sequence[NN_Tensor]], object]
# (user_data)
NN_OnServiceDied = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class AsyncRun:
    """User data of an asynchronous run, and the other objects that its callback needs."""

    user_data: Any
    outputs: Any
    executor: OH_NNExecutor


def wrap_on_run_done(callback: NN_OnRunDone | None) -> Callable[[AsyncRun, Any, NnrtError | None], object]:
    """Wrap the application's OnRunDone as a callback of `Executor`. Raise InvalidParameter for a null pointer."""
    checked = _callable(callback)

    def call(run: AsyncRun, outputs: Any, error: NnrtError | None) -> object:
        run.executor.store_shapes(outputs if error is None else error)
        code = ReturnCode.SUCCESS if error is None else code_of(error, "OH_NNExecutor_RunAsync")
        return checked(run.user_data, code, run.outputs)

    return call


def wrap_on_service_died(callback: NN_OnServiceDied | None) -> Callable[[AsyncRun], object]:
    """Wrap the application's OnServiceDied as a callback of `Executor`. Raise InvalidParameter for a null pointer."""
    checked = _callable(callback)
    return lambda run: checked(run.user_data)


def _callable(callback: Callable[..., object] | None) -> Callable[..., object]:
    if not callable(callback):
        raise InvalidParameter(f"the callback is {callback!r}; give a function")
    return callback
