"""Run of a model in parts."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from nnrt_client.model_session.partition.device_part import OnPartDone
from nnrt_client.run.run import Run
from nnrt_client.tensors.run_tensor import RunTensor


class PartCall(Protocol):
    """One run of a part."""

    # Whether it writes to tensors of the application.
    is_writing: bool

    def start(self, done: OnPartDone) -> None:
        """Start the run."""

    def stop(self) -> None:
        """Cancel the run of the part, which still calls `done`. Any thread may call this."""

    def settle(self) -> None:
        """Give back the memory of the outputs, which are no longer read."""


class ReadyPart(Protocol):
    """Part of a model, ready to run."""

    inputs: list[str]
    outputs: list[str]

    def call(
        self,
        values: Mapping[str, Any],
        sizes: Mapping[str, int],
        timeout_ms: int | None,
        targets: Mapping[str, RunTensor[Any]],
        on_behalf_of: str | None,
    ) -> PartCall:
        """Prepare a run on these values, with the sizes of named dimensions and the tensors that it may write to.

        `on_behalf_of` is the name of the identity for which a daemon counts the run, or None.
        """


class PartsOfRun:
    """One run of a model in parts.

    Each part starts when all its inputs are known, in the thread that made the last of them. The parts have ended when
    the run is over and none of them writes to the application's tensors any more.
    """

    def __init__(
        self,
        parts: Sequence[ReadyPart],
        values: dict[str, Any],
        sizes: Mapping[str, int],
        run: Run,
        targets: Mapping[str, RunTensor[Any]],
        on_ended: Callable[["PartsOfRun"], object],
    ) -> None:
        """Prepare the run.

        `targets` are tensors that parts may write to while it goes on. `on_ended` is called once, when all parts have
        ended.
        """
        self.values = values
        self.error: BaseException | None = None
        self.run = run
        self._sizes = sizes
        self._targets = targets
        self._on_ended = on_ended
        # Parts run in the context of the caller that started the run, whichever thread starts them.
        self._context = copy_context()
        # Guards the choice of the next part, and the end of the run. It is never held while a part starts or a callback
        # runs.
        self._lock = threading.RLock()
        self._waiting = {at: set(part.inputs) - values.keys() for at, part in enumerate(parts)}
        self._parts = parts
        self._left = len(parts)
        self._calls: list[PartCall] = []
        self._writing: set[PartCall] = set()
        self._is_over = False
        self._is_notified = False

    def start(self) -> None:
        """Start the parts that need only the run's inputs."""
        if not self._parts:
            self._end(None)
        self._start_ready()

    def give_up(self, reason: BaseException) -> bool:
        """End the run with this error, and stop its parts; return False if the run was over already.

        Any thread may call this.
        """
        return self._end(reason)

    def _start_ready(self) -> None:
        while True:
            with self._lock:
                ready = [at for at, missing in self._waiting.items() if not missing]
                if self._is_over or not ready:
                    return
                part = self._parts[ready[0]]
                del self._waiting[ready[0]]
                run = self.run
                call = part.call(self.values, self._sizes, run.remaining_ms or None, self._targets, run.on_behalf_of)
                self._calls.append(call)
                if call.is_writing:
                    self._writing.add(call)
            try:
                self._context.copy().run(call.start, partial(self._part_ended, call))
            except BaseException as error:
                self._writing.discard(call)
                self._end(error)
                if not isinstance(error, Exception):
                    raise

    def _part_ended(self, call: PartCall, outputs: Mapping[str, Any] | None, error: BaseException | None) -> None:
        with self._lock:
            self._writing.discard(call)
            if outputs is not None:
                self.values.update(outputs)
                for missing in self._waiting.values():
                    missing.difference_update(outputs)
                self._left -= 1
        if outputs is None or not self._left:
            self._end(error)
        else:
            self._start_ready()
        self._notify_ended()

    def _end(self, error: BaseException | None) -> bool:
        with self._lock:
            if self._is_over:
                return False
            self._is_over = True
            self.error = error
            calls, self._calls = self._calls, []
        for call in calls:
            if error is None:
                call.settle()
            else:
                call.stop()
        self._notify_ended()
        return True

    def _notify_ended(self) -> None:
        """Call `on_ended` once all parts have ended."""
        with self._lock:
            if self._is_notified or not self._is_over or self._writing:
                return
            self._is_notified = True
        try:
            self._on_ended(self)
        finally:
            self.values = {}
