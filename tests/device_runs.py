"""Runs of a device in this process, which no client asks for."""

from collections.abc import Sequence

from nnrt_device_service.device import Device
from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.tensor import Array


def outputs_of(device: Device, session: Session, model: LoadedModel, inputs: Sequence[Array]) -> Sequence[Array]:
    """Run a model of a session. Raises what the run failed with."""
    run = Run(session, 0, Cancellation())
    run.model, run.inputs = model, list(inputs)
    device.executing.execute(run)
    if run.error is not None:
        raise run.error
    return run.outputs
