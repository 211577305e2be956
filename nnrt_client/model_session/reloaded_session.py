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

# A run that the daemon has received is not repeated. A run waits for the load of the model without a limit.
_ONCE = Rule(retries=0, patience_s=math.inf)


class ReloadedSession(ModelSession):
    """Session that loads its model again, with the same call of `load`, in the first run after its daemon has died.

    The model goes to the restarted daemon, or to the first device of NNRT_DEVICES that answers. A run that was under
    way when the daemon died raises UnavailableDevice. A run that had not been sent is sent after the load, unless it
    has tensors. Made by `load` with `on_death="reload"`.
    """

    def __init__(self, load_again: LoadAgain, progress: Progress | None, wait_s: float) -> None:
        """Load the model, and look for its device for up to `wait_s`; later loads don't wait for a device."""
        with ExitStack() as stack:
            self._replica = stack.enter_context(OneReplica(load_again, progress, wait_s))
            executor = stack.enter_context(Executor._of(PoolDispatcher(self._replica, _ONCE)))
            super().__init__(executor, self.device, self.report, stack.pop_all())

    @property
    def device(self) -> Device:
        """Device that runs the model, or that made the last run."""
        return self._replica.loaded.device

    @property
    def report(self) -> BuildReport:
        """Report of how this device got the model."""
        return self._replica.loaded.report


def make_reloaded(on_death: str, load_again: LoadAgain, progress: Progress | None, wait_s: float) -> ReloadedSession:
    """Return a session that loads its model again; raise InvalidParameter if `on_death` is not "reload"."""
    if on_death != "reload":
        raise InvalidParameter(f"on_death is {on_death!r}; use 'raise' or 'reload'")
    return ReloadedSession(load_again, progress, wait_s)
