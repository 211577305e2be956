"""Dispatcher of a model that is loaded in one session."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.run.descriptions import Descriptions
from nnrt_client.run.dispatcher import Dispatcher
from nnrt_client.run.run import Run
from nnrt_client.run.session_dispatcher import SessionDispatcher
from nnrt_client.run.signature import Signature
from nnrt_client.run.traced_run import traced_run
from nnrt_client.session.session import Session
from nnrt_hdi.errors import NnrtError

PartT = TypeVar("PartT")


class ModelDispatcher(Dispatcher):
    """Dispatcher of the runs of a model in one session."""

    kind = "executor"

    def __init__(self, prepared: PreparedHandle) -> None:
        """Take over the handle of the model. `close` releases it.

        Raises:
            UnavailableDevice: The daemon has died. The handle is released.
        """
        self._prepared = prepared
        try:
            self._session = session = prepared.session
            session.require_alive()
            self.signature = Signature(session, prepared.model_id, prepared.inputs, prepared.outputs)
            self._dispatcher = of_session = session.part(SessionDispatcher)
        except BaseException:
            prepared.release()
            raise
        self.run_sync, self.start, self.call_back = of_session.run_sync, of_session.start, session.call_back
        self.bound_s = session.settings.run_timeout_s
        self.runs = set()
        make = Run if session.tracer is None else partial(traced_run, session.tracer.begin_run)
        self._descriptions = prepared.part(Descriptions)
        self.new_run = partial(make, self.signature, self.runs, self._descriptions, prepared.priority)

    @property
    def death(self) -> NnrtError | None:
        return self._session.death

    def serve(self, run: Run, identity: str) -> None:
        super().serve(run, identity)
        run.descriptions = self._descriptions.on_behalf_of(identity)

    def part(self, make: Callable[[Session], PartT]) -> PartT:
        """Return the object that `make` makes on first use, and that lives as long as the model."""
        return self._prepared.part(make)

    def give_up(self, run: Run, *, is_left: bool = False) -> None:
        self._dispatcher.give_up(run, is_left=is_left)

    def close(self) -> None:
        """Release the model. The executor calls this once."""
        self._prepared.release()
