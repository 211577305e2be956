"""Session that outlives its daemon."""

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

# A run that the daemon had is not made again. One that needs the model waits as long as loading takes.
_ONCE = Rule(retries=0, patience_s=math.inf)


class ReloadedSession(ModelSession):
    """Session whose next run loads the model again after the daemon has died, by the same call of `load`.

    The model goes to the restarted daemon, or to the first device of NNRT_DEVICES that answers. A run that was under
    way raises UnavailableDevice, once. A run that had not been sent goes on, unless it has tensors. Made by `load` with
    `on_death="reload"`.
    """

    def __init__(self, load_again: LoadAgain, progress: Progress | None, wait_s: float) -> None:
        """Load the model, and look for the device for `wait_s`; later loads don't wait for it."""
        with ExitStack() as stack:
            self._replica = stack.enter_context(OneReplica(load_again, progress, wait_s))
            executor = stack.enter_context(Executor._of(PoolDispatcher(self._replica, _ONCE)))
            super().__init__(executor, self.device, self.report, stack.pop_all())

    @property
    def device(self) -> Device:
        """Device that runs the model, or did in the last run."""
        return self._replica.loaded.device

    @property
    def report(self) -> BuildReport:
        """Report of how this device got the model."""
        return self._replica.loaded.report


def make_reloaded(on_death: str, load_again: LoadAgain, progress: Progress | None, wait_s: float) -> ReloadedSession:
    """Return a session that loads its model again; raise InvalidParameter for anything but "reload"."""
    if on_death != "reload":
        raise InvalidParameter(f"on_death is {on_death!r}; use 'raise' or 'reload'")
    return ReloadedSession(load_again, progress, wait_s)
