"""A session that outlives its daemon."""

import math
from contextlib import ExitStack

from nnrt_client.build.build_task import BuildReport, Progress
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.pool.attempts import Rule
from nnrt_client.pool.dispatcher import PoolDispatcher
from nnrt_client.pool.one_replica import LoadAgain, OneReplica
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_hdi.errors import InvalidParameter

# A run that the daemon had is not made again. One that needs the model waits as long as it takes to load it.
_ONCE = Rule(retries=0, patience_s=math.inf)


class ReloadedSession(ModelSession):
    """A session whose next run loads the model again when its daemon has died, by the same call of `load`.

    That is on the restarted daemon, or on the first device of NNRT_DEVICES that answers. A run that was under way
    raises UnavailableDevice, once; one that had not been sent goes on, unless it has tensors. Made by `load` with
    `on_death="reload"`.
    """

    def __init__(self, load_again: LoadAgain, progress: Progress | None, wait_s: float) -> None:
        """Loads the model; only now it looks for the device for `wait_s`."""
        with ExitStack() as stack:
            self._replica = stack.enter_context(OneReplica(load_again, progress, wait_s))
            executor = stack.enter_context(Executor._of(PoolDispatcher(self._replica, _ONCE)))
            super().__init__(executor, self.device, self.report, stack.pop_all())

    @property
    def device(self) -> Device:
        """The device that runs it, or did when it was last asked to."""
        return self._replica.loaded.device

    @property
    def report(self) -> BuildReport:
        """Report of how this device got the model."""
        return self._replica.loaded.report


def reloaded(on_death: str, load_again: LoadAgain, progress: Progress | None, wait_s: float) -> ReloadedSession:
    """A session that loads its model again. Raises InvalidParameter for anything but "reload"."""
    if on_death != "reload":
        raise InvalidParameter(f"on_death is {on_death!r}; use 'raise' or 'reload'")
    return ReloadedSession(load_again, progress, wait_s)
