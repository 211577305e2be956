"""Models that torch compiles: the option `compile`."""

import numpy as np
import pytest
from conftest import StartDaemon

from nnrt_client import Compilation, DataType, Executor, InvalidParameter, Model, OperationType, Runtime

pytest.importorskip("torch", reason="needs torch: `make test-torch` has it")


@pytest.mark.slow
def test_a_compiled_model_gives_the_same(start_daemon: StartDaemon) -> None:
    """Torch compiles the model once for each kind of run. A wrong index gives the error that other models give."""
    daemon = start_daemon("--backend", "torch", "--option", "compile=yes")
    model = Model()
    x = model.input((-1,), name="x")
    indices = model.input((2,), DataType.INT32, name="indices")
    doubled = model.apply(OperationType.ADD, x, x)
    model.specify_inputs_and_outputs([x, indices], [model.apply(OperationType.GATHER, doubled, indices, np.array(0))])
    model.finish()
    with Runtime([daemon.address]) as runtime, Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            for length in (4, 6, 4):
                vector = np.arange(length, dtype=np.float32)
                (y,) = executor.run_sync([vector, np.array([3, 1], np.int32)], timeout_ms=100_000)
                np.testing.assert_array_equal(y, [6, 2])
                with pytest.raises(InvalidParameter, match=rf"indices\[1\] is -1 in a dimension of {length} elements"):
                    executor.run_sync([vector, np.array([3, -1], np.int32)])
    assert daemon.log().count("torch compiled a kind of run") == 2
