"""Callbacks of executors that record their arguments."""

import queue
from typing import Any

from nnrt_client.oh_nn import *
from oh_nn.world import ok

DEADLINE_S = 30
MINUTE_MS = 60_000


class Callbacks:
    """Record of an executor's callbacks, in order."""

    def __init__(self, executor: Any, *, on_service_died: bool = True) -> None:
        self.calls: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        ok(OH_NNExecutor_SetOnRunDone(executor, lambda *given: self.calls.put(("done", *given))))
        if on_service_died:
            ok(OH_NNExecutor_SetOnServiceDied(executor, lambda *given: self.calls.put(("died", *given))))

    def only(self) -> tuple[Any, ...]:
        """Return the only callback."""
        call = self.calls.get(timeout=DEADLINE_S)
        assert self.calls.empty()
        return call
