"""Residence of a sequence: the device on which it lives, and how another one goes on when that is lost."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import TypeVar

from nnrt_client.run.dispatcher import Dispatcher
from nnrt_client.sequences.home import Home, Limits, LoopedRun
from nnrt_client.sequences.homes import homes_of
from nnrt_client.sequences.log import Log, LoggedLoop, LoggedRun, LoggedValues
from nnrt_hdi.errors import ConnectionFailed, NnrtError, OperationForbidden, UnavailableDevice
from nnrt_hdi.signals import raised_by_handler

# Devices that may fail one operation before it fails.
_MOST_MOVES = 8
# Most runs, and most bytes of their inputs, that one request makes again.
_MOST_AGAIN = 256
_MOST_AGAIN_BYTES = 256 << 10

T = TypeVar("T")


class Residence:
    """Device on which a sequence lives, and the log from which it is made again elsewhere. For one thread at a time."""

    def __init__(self, dispatcher: Dispatcher, log_bytes: int, on_behalf_of: str | None) -> None:
        """Find devices for a sequence of a dispatcher's model. Raise Unsupported for a model that is cut into parts."""
        self._homes = homes_of(dispatcher)
        self.log = Log(log_bytes) if self._homes.has_others else None
        self.on_behalf_of = on_behalf_of
        # Numbers of the values that have been written or made.
        self.known: set[int] = set()
        self._home: Home | None = None

    def do(self, work: Callable[[Home], T]) -> T:
        """Do something where the sequence lives, again on another device if that one fails.

        Raises:
            OperationForbidden: An operation was cut short, and there is no log to make it again.
            NnrtError: What `work` raises.
        """
        left = _MOST_MOVES
        while True:
            home, left = self._home, left - 1
            is_here = home is not None and home.is_alive and not self._homes.is_leaving(home.dispatcher)
            if home is not None and not is_here and self.log is None:
                home.session.require_alive()
                raise OperationForbidden(
                    "an operation of the sequence was cut short, so its state is not known; begin another sequence"
                )
            chosen = None if is_here else self._homes.choose()
            try:
                if chosen is not None:
                    self._move(Home(chosen))
                assert self._home is not None
                return work(self._home)
            except NnrtError as error:
                if raised_by_handler(error) or not left or self._home is None or not self.may_move(self._home, error):
                    raise

    def may_move(self, home: Home, error: NnrtError) -> bool:
        """Return whether another device may go on after an error, and count the failure of this one."""
        if self.log is None:
            return False
        is_leaving = self._homes.is_leaving(home.dispatcher)
        if isinstance(error, UnavailableDevice | ConnectionFailed):
            self._homes.count_failure(home.dispatcher)
        elif not is_leaving:
            return False
        if not is_leaving:
            home.is_certain = False
        return True

    def is_leaving(self, home: Home) -> bool:
        """Return whether a device gets no more runs, so that the sequence should move."""
        return self._homes.is_leaving(home.dispatcher)

    def shorten_log(self) -> None:
        """Replace a log that is too long by a copy of the values."""
        if self.log is not None and self.log.is_full:
            self.log.restart(self.do(lambda home: home.read(sorted(self.known))))

    def fork(self) -> "Residence":
        """Return the residence of a sequence that begins with the values of this one."""
        forked = Residence.__new__(Residence)
        forked._homes, forked.on_behalf_of, forked.known = self._homes, self.on_behalf_of, set(self.known)
        forked._home = self.do(lambda home: Home(home.dispatcher, home))
        forked.log = self.log.copy() if self.log is not None else None
        return forked

    def close(self) -> None:
        """Free the values on the device."""
        home, self._home = self._home, None
        if home is not None:
            home.release()

    def _move(self, new: Home) -> None:
        """Let the sequence live in another home: copy the values there, or make the operations of the log again."""
        former, self._home = self._home, new  # Set first, so that `do` counts a failure for the right device.
        if former is None:
            return
        values = None
        if former.is_alive:
            try:
                values = former.read(sorted(self.known))
            except NnrtError as error:
                if raised_by_handler(error):
                    raise
        former.release()
        assert self.log is not None
        if values is not None:
            self.log.restart(values)
        try:
            self._make_again(new, self.log)
        except BaseException:
            new.is_certain = False
            raise

    def _make_again(self, home: Home, log: Log) -> None:
        runs: list[LoopedRun] = []
        for entry in log.entries:
            if isinstance(entry, LoggedRun):
                runs.append(LoopedRun(home.dispatcher.signature, entry.reads, entry.keepings, entry.values))
                if len(runs) < _MOST_AGAIN and sum(map(_bytes, runs)) < _MOST_AGAIN_BYTES:
                    continue
            if runs:
                self._loop_again(home, runs, 1)
                runs = []
            if isinstance(entry, LoggedValues | LoggedLoop):
                home.write(entry.values)
            if isinstance(entry, LoggedLoop) and entry.steps:
                self._loop_again(home, entry.plan.runs(home.dispatcher), entry.steps)
        if runs:
            self._loop_again(home, runs, 1)

    def _loop_again(self, home: Home, runs: Items[LoopedRun], steps: int) -> None:
        silent = [run._replace(delivered=(), stop=0) for run in runs]
        home.loop_silently(home.request(silent, Limits(steps), self.on_behalf_of))


def _bytes(run: LoopedRun) -> int:
    return sum(array.nbytes for array in run.values.values())
