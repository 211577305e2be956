"""Log of a process: its handler, rate limit and set-up."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from nnrt_device_service.host.log_formats import JsonFormatter, TextFormatter, fields_of
from nnrt_hdi.log_lines import StandardErrorLines

_log = logging.getLogger(__name__)

# Lines per second about one identity, and about all. A client can cause any number of lines.
LINES_A_SECOND, LINES_A_SECOND_OF_ALL = 100, 300
# Name that stands for the identities that are too many to name.
OTHERS = "others"
# Latest lines that stay in memory, and characters of each.
_RECENT_LINES, _RECENT_CHARACTERS = 1000, 4000


class LogHandler(logging.Handler):
    """Handler that logs to standard error, with a limit on the lines per second about an identity."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lines = StandardErrorLines(
            lambda lost: self.format(
                _line(logging.WARNING, f"{lost} lines are lost here: nobody read the standard error")
            )
        )
        self._limit = LineLimit()
        # Device name of lines that have none.
        self.device: str | None = None
        # Latest lines in order.
        self.recent: deque[str] = deque(maxlen=_RECENT_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self._log_left_out()
        identity = fields_of(record).get("identity")
        is_bounded = identity is not None and record.levelno > logging.DEBUG
        if not is_bounded or self._limit.admit(str(identity), is_error=record.levelno >= logging.ERROR):
            self._put(record)

    def flush(self) -> None:
        """Log how many lines were left out in the past seconds."""
        with self._locked():
            self._log_left_out()

    def close(self) -> None:
        """Log how many lines were left out so far, and close the handler."""
        with self._locked():
            self._log_left_out(is_last=True)
        super().close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def _log_left_out(self, *, is_last: bool = False) -> None:
        for identity, count in self._limit.take_left_out(is_last=is_last).items():
            message = f"{count} lines about {identity} are left out here: there were too many in a second"
            self._put(_line(logging.WARNING, message, identity=identity))

    def _put(self, record: logging.LogRecord) -> None:
        if self.device and not hasattr(record, "device"):
            record.device = self.device
        line = self.format(record)
        self.recent.append(line if len(line) <= _RECENT_CHARACTERS else f"{line[:_RECENT_CHARACTERS]} ...")
        with suppress(OSError):
            self._lines.write(line)


class LineLimit:
    """Rate limit of lines per identity and second. Errors count separately, so that other lines can't displace them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at = 0.0
        self._errors: Counter[str] = Counter()
        self._others: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def admit(self, identity: str, *, is_error: bool) -> bool:
        """Return whether one more line may be written in this second; if not, count it as left out."""
        written = self._errors if is_error else self._others
        if written[identity] < LINES_A_SECOND and written.total() < LINES_A_SECOND_OF_ALL:
            written[identity] += 1
            return True
        self._left_out[identity] += 1
        return False

    def take_left_out(self, *, is_last: bool = False) -> Mapping[str, int]:
        """Return the lines left out in the past second, by identity, or nothing while the second lasts.

        `is_last` includes the current second. Names at most LINES_A_SECOND identities and sums up the rest as `OTHERS`,
        because a host may have a million addresses.
        """
        now = self._clock()
        if now < self._ends_at and not is_last:
            return {}
        self._ends_at = now + 1.0
        self._errors.clear()
        self._others.clear()
        left_out, self._left_out = self._left_out, Counter()
        counts = dict(left_out.most_common(LINES_A_SECOND))
        if left := left_out.total() - sum(counts.values()):
            counts[OTHERS] = left
        return counts


def set_up_log(format: str, *, is_verbose: bool = False) -> LogHandler:
    """Log to standard error as "text" or "json", including Python's warnings and failures of threads."""
    handler = LogHandler(JsonFormatter() if format == "json" else TextFormatter())
    logging.basicConfig(level=logging.DEBUG if is_verbose else logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    threading.excepthook = _log_failed_thread
    return handler


def flush_log() -> None:
    """Flush all handlers of the root logger."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def _line(level: int, message: str, **fields: object) -> logging.LogRecord:
    """Return a record about the log itself, such as the number of lines left out."""
    return logging.makeLogRecord(
        {"name": __name__, "levelno": level, "levelname": logging.getLevelName(level), "msg": message, **fields}
    )


def _log_failed_thread(failure: threading.ExceptHookArgs) -> None:
    if failure.exc_value is not None:
        name = failure.thread.name if failure.thread else "?"
        _log.error("the thread %s has failed", name, exc_info=failure.exc_value)
