"""Runs of a `Device` in this process, without a client."""

from collections.abc import Sequence

from nnrt_device_service.device import Device
from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.tensor import Array


def outputs_of(device: Device, session: Session, model: LoadedModel, inputs: Sequence[Array]) -> Sequence[Array]:
    """Run a session's model, and return the outputs.

    Raises the run's error.
    """
    run = Run(session, 0, Cancellation())
    run.model, run.inputs = model, list(inputs)
    device.executing.execute(run)
    if run.error is not None:
        raise run.error
    return run.outputs
