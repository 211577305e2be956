"""How batching is asked for, and refused."""

from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess

from batching.conftest import UP_TO_16, dense_model, rows
from nnrt_client import (
    Batching,
    Compilation,
    Executor,
    InvalidParameter,
    Model,
    OperationType,
    Origin,
    Runtime,
    Unsupported,
    load,
)


def mixing_model() -> Model:
    """A softmax over the rows."""
    model = Model()
    x = model.input((-1, 4), name="x")
    y = model.apply(OperationType.SOFTMAX, x, axis=0, name="over the rows")
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def fixed_model() -> Model:
    """A model for one row."""
    model = Model()
    x = model.input((1, 4), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ABS, x)])
    model.finish()
    return model


def test_what_mixes_rows_is_refused_with_the_reason(shared_daemon: DaemonProcess) -> None:
    with pytest.raises(Unsupported, match=r"SOFTMAX node 0 'over the rows': .*rows"):
        load(mixing_model(), shared_daemon.address, batching=UP_TO_16)


def test_a_fixed_first_dimension_is_refused(shared_daemon: DaemonProcess) -> None:
    with pytest.raises(Unsupported, match=r"'x'.* no open dimension 0"):
        load(fixed_model(), shared_daemon.address, batching=UP_TO_16)


def test_the_operator_learns_once_which_models_run_alone(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--batch", "16:100")
    for _ in range(2):
        with load(mixing_model(), daemon.address, cache=False) as session:
            assert session.run({"x": np.ones((2, 4), np.float32)})
    assert daemon.log().count("are not computed together: SOFTMAX node 0") == 1


@pytest.mark.parametrize("text", ["0", "1", "16:", "x", "16:-1", "16:2000000", "99999999", "16:1:1", "-4"])
def test_settings_that_cannot_be(start_daemon: StartDaemon, text: str) -> None:
    if text == "16:":
        assert Batching.of(text) == Batching(16)
        return
    with pytest.raises(RuntimeError, match="--batch"):
        start_daemon(f"--batch={text}")
    with pytest.raises(InvalidParameter):
        Batching.of(text)


@pytest.mark.parametrize("values", [{"max_size": 1}, {"max_size": True}, {"max_delay_us": -1}, {"max_size": 2.5}])
def test_values_that_cannot_be(values: dict[str, int]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(values))):
        Batching(**values)


def test_a_model_from_a_cache(restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """It is judged by the model that the client has; without that nothing says what it does."""
    origins = []
    with Runtime([restoring_daemon.address]) as runtime:
        for _ in range(2):
            with Compilation(dense_model(), runtime.device()) as compilation:
                compilation.set_cache(tmp_path, 1)
                compilation.set_batching(UP_TO_16)
                compilation.build()
                origins.append(compilation.origin)
                with Executor(compilation) as executor:
                    assert executor.run_sync([rows(1)])[0].shape == (1, 4)
        with Compilation.for_cache(runtime.device()) as compilation:
            compilation.set_cache(tmp_path, 1)
            compilation.set_batching(UP_TO_16)
            with pytest.raises(Unsupported, match="give the model itself"):
                compilation.build()
    assert origins == [Origin.COMPILED, Origin.RESTORED]
