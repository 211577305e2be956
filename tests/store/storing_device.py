"""A `Device` in this process with a model store, and a session that uses it like a client's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from device_runs import outputs_of
from networks import weighted_model
from storing_backend import StoringBackend
from waiting import until

from nnrt_client.model.model import parts_of
from nnrt_device_service.device import Device
from nnrt_device_service.memory.constants import MissingConstants
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Build
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.settings import Settings
from nnrt_hdi import wire
from nnrt_hdi.backend import Backend, ModelConfig, Origin
from nnrt_hdi.files.store_directory import SUFFIX
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Constant, Graph

WEIGHTS = 1000
X = np.array([0.5], np.float32)


def graph(seed: int = 0, elements: int = WEIGHTS) -> Graph:
    """Return y = x + w, with weights that depend on the seed."""
    return parts_of(weighted_model(elements, seed)).graph


def device_on(directory: Path, backend: Backend | None = None, **settings: Any) -> Device:
    return Device(backend or StoringBackend(), Settings(store_dir=str(directory), **settings))


@contextmanager
def session_of(device: Device) -> Iterator[Session]:
    session = device.sessions.open("a test", lambda: None)
    device.open_account(session, "a test")
    try:
        yield session
    finally:
        device.sessions.close(session)
        # True after the store has written the compiled models.
        until(lambda: session.budget.used_bytes == 0)
        device.threads.close()


def ask(
    device: Device, session: Session, graph: Graph, config: ModelConfig | None = None, stages: list[str] | None = None
) -> Prepared | MissingConstants:
    """Prepare a graph without its large constants, like a client's first request; return the answer."""
    constants = {
        index: Constant(constant.sha256, constant.size_bytes)
        if constant.size_bytes > INLINE_CONSTANT_BYTES
        else constant
        for index, constant in graph.constants.items()
    }
    reached = [] if stages is None else stages
    sent = wire.SentModel(wire.model_message(replace(graph, constants=constants)))
    progress = Progress(lambda stage, _: reached.append(stage))
    return device.models.prepare(sent, Build(session, config or ModelConfig(), progress))


def prepared(
    device: Device, session: Session, graph: Graph, config: ModelConfig | None = None, stages: list[str] | None = None
) -> Prepared:
    """Prepare a graph, with its missing constants, and check a run of it."""
    answer = ask(device, session, graph, config, stages)
    if isinstance(answer, MissingConstants):
        for constant in graph.constants.values():
            assert constant.data is not None
            session.constants.write(constant.sha256, constant.size_bytes, 0, constant.data.tobytes())
        answer = ask(device, session, graph, config, stages)
    assert isinstance(answer, Prepared)
    (result,) = outputs_of(device, session, session.model(answer.model_id), [X])
    (weights,) = graph.constants.values()
    assert weights.data is not None
    np.testing.assert_array_equal(result, np.add(X, weights.data))
    return answer


def origin(device: Device, graph: Graph, config: ModelConfig | None = None) -> Origin:
    """Return where a new session gets the model from."""
    with session_of(device) as session:
        return prepared(device, session, graph, config).origin


def files(directory: Path) -> list[Path]:
    """Return the store's model files."""
    return sorted(directory.glob(f"*{SUFFIX}"))
