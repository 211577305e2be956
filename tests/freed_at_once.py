"""Freeing without threads, for tests of what is freed and when; and models that a test frees."""

from collections.abc import Callable

from nnrt_device_service.host.threads import Threads
from nnrt_device_service.memory.freeing import Freeing
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_hdi.backend import PreparedModel


class _NoThreads(Threads):
    def run(self, work: Callable[[], object]) -> None:
        work()


def freed_at_once() -> Freeing:
    """Return a `Freeing` that frees objects in the calling thread."""
    return Freeing(_NoThreads("none"))


def lone_model(prepared: PreparedModel, on_closed: Callable[[], object] = lambda: None) -> SharedModel:
    """Return a model for one holder; `on_closed` is called when it has been closed."""
    model = SharedModel.alone(prepared, MemoryBudget(0))
    model.on_closed = lambda model: on_closed()
    return model


def loaded_alone(prepared: PreparedModel, on_closed: Callable[[], object] = lambda: None) -> LoadedModel:
    """Return a lone model as a session has it."""
    model = lone_model(prepared, on_closed)
    return LoadedModel(model, freed_at_once(), model.release)
