"""Reasons of failed calls, which codes don't say."""

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nnrt_client import InvalidParameter, OperationFailed
from nnrt_client.oh_nn import *
from oh_nn.callbacks import DEADLINE_S, MINUTE_MS
from oh_nn.world import World, ok


def test_it_is_the_last_of_its_thread() -> None:
    assert OH_NNTensorDesc_SetShape(OH_NNTensorDesc_Create(), []) == OH_NN_INVALID_PARAMETER
    error = last_error()
    assert isinstance(error, InvalidParameter)
    assert "1 to 10" in str(error)
    in_another: list[Any] = []
    thread = threading.Thread(target=lambda: in_another.append(last_error()))
    thread.start()
    thread.join()
    assert in_another == [None]
    assert OH_NNModel_AddTensorToModel(None, None) == OH_NN_INVALID_PARAMETER
    assert last_error() is not error


def test_pointers_and_void_functions_leave_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "nnrt_client"):
        assert OH_NNCompilation_Construct(None) is None
    assert "OH_NNModel" in str(last_error())
    assert "OH_NNCompilation_Construct: INVALID_PARAMETER" in caplog.text
    first = last_error()
    OH_NNModel_Destroy(None)
    assert last_error() is not first


class Broken(Sequence[int]):
    """Breaks when it is read."""

    def __getitem__(self, index: Any) -> Any:
        raise ZeroDivisionError

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[int]:
        raise ZeroDivisionError("the caller's mistake")


def test_what_nobody_expects_is_failed(caplog: pytest.LogCaptureFixture) -> None:
    assert OH_NNTensorDesc_SetShape(OH_NNTensorDesc_Create(), Broken()) == OH_NN_FAILED
    assert isinstance(last_error(), OperationFailed)
    assert "the caller's mistake" in str(last_error())
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None


@pytest.mark.slow
def test_callbacks_know_why(world: World) -> None:
    compilation = world.faulty("run")
    ok(OH_NNCompilation_Build(compilation))
    executor = world.executor(compilation=compilation)
    told: list[str] = []
    done = threading.Event()

    def on_run_done(user_data: Any, code: Any, outputs: Any) -> None:
        told.append(str(last_error()))
        done.set()

    ok(OH_NNExecutor_SetOnRunDone(executor, on_run_done))
    ok(OH_NNExecutor_RunAsync(executor, [world.tensor()], [world.tensor()], MINUTE_MS, "mine"))
    assert done.wait(DEADLINE_S)
    (why,) = told
    assert why.startswith(
        "the device failed to run the model (RuntimeError); the daemon's log has the details (request "
    )
