"""Locks that report an order of locking that may deadlock, and blocking calls under a lock.

As a program it becomes a daemon with such locks: `python lock_watch.py PYTHON -m nnrt_device_service serve`.
"""

import concurrent.futures
import inspect
import os
import queue
import runpy
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

# Beginnings of a watch's lines.
PROBLEM, ORDER = "LOCK PROBLEM: ", "LOCK ORDER: "

_ROOMS = ("nnrt_device_service", "nnrt_hdi", "grpc")
# Starting a thread waits until it has begun, which needs none of our locks.
_STARTS_THREAD = threading.Thread.start.__code__
_real_lock, _real_rlock, _real_condition = threading.Lock, threading.RLock, threading.Condition
_WAITS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (time, ("sleep",)),
    (os, ("fsync", "fdatasync", "preadv")),
    (threading.Event, ("wait",)),
    (threading.Thread, ("join",)),
    (concurrent.futures, ("wait",)),
    (concurrent.futures.Future, ("result", "exception", "set_result", "set_exception")),
    (
        socket.socket,
        ("accept", "connect", "recv", "recv_into", "recvfrom", "recvmsg", "send", "sendall", "sendmsg", "sendto"),
    ),
)


class Watch:
    """Record of the locks that each thread holds, and of the order in which locks were taken, by their names."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._thread = threading.local()
        self._lock = _real_lock()
        # By lock name: the locks taken under it, each with the stack of the first time.
        self._under: dict[str, dict[str, str]] = {}
        self._told: set[str] = set()

    @property
    def held(self) -> list["WatchedLock"]:
        """Locks that this thread holds, the latest last."""
        if not hasattr(self._thread, "held"):
            self._thread.held = []
        held: list[WatchedLock] = self._thread.held
        return held

    def before(self, lock: "WatchedLock") -> None:
        """Check the lock order when this thread is about to take a lock."""
        for outer in self.held:
            if outer is lock:
                self._problem(f"{lock.name} is taken again by the thread that has it")
            elif outer.name == lock.name:
                self._problem(f"two locks {lock.name} are held at a time")
            elif lock.name not in self._under.get(outer.name, ()):
                self._learn(outer.name, lock.name)

    def forbid(self, what: str) -> None:
        """Report a problem if this thread holds a lock while it does what is forbidden under locks."""
        if self.held:
            self._problem(f"{what} under {', '.join(lock.name for lock in self.held)}")

    def _learn(self, outer: str, inner: str) -> None:
        with self._lock:
            self._under.setdefault(outer, {})[inner] = _stack()
            way = self._way(inner, outer)
        self._tell(f"{ORDER}{outer} > {inner}")
        if way:
            others = "".join(f"--- {a} > {b}:\n{self._under[a][b]}" for a, b in pairwise(way))
            self._problem(f"{' > '.join([outer, *way])} may deadlock\n{others}")

    def _way(self, start: str, end: str, seen: tuple[str, ...] = ()) -> list[str]:
        """Return the lock names on a path from `start` to `end`, or an empty list.

        Each lock on the path has been taken under the one before.
        """
        if start == end:
            return [end]
        for inner in self._under.get(start, {}):
            if inner not in seen and (way := self._way(inner, end, (*seen, start))):
                return [start, *way]
        return []

    def _problem(self, said: str) -> None:
        if said not in self._told:
            self._told.add(said)
            self._tell(f"{PROBLEM}{said}\n--- here:\n{_stack()}")


class WatchedLock:
    """Lock, or RLock, that reports to a watch."""

    def __init__(self, watch: Watch, name: str, *, is_reentrant: bool = False) -> None:
        self.name = name
        self._watch = watch
        self._is_reentrant = is_reentrant
        self._inner = _real_rlock() if is_reentrant else _real_lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking and not (self._is_reentrant and self._is_owned()):
            self._watch.before(self)
        is_taken = self._inner.acquire(blocking, timeout)
        if is_taken:
            self._watch.held.append(self)
        return is_taken

    def release(self) -> None:
        self._watch.held.remove(self)
        self._inner.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    # ---- for Condition

    def _is_owned(self) -> bool:
        return self in self._watch.held

    def _release_save(self) -> int:
        depth = self._watch.held.count(self)
        for _ in range(depth):
            self.release()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        for _ in range(depth):
            self.acquire()


class WatchedCondition(threading.Condition):
    """Condition that reports to a watch: a waiting thread may hold the condition's own lock, but no other."""

    def __init__(self, watch: Watch, lock: WatchedLock) -> None:
        super().__init__(lock)  # type: ignore[arg-type]
        self._watch, self._own = watch, lock

    def wait(self, timeout: float | None = None) -> bool:
        if any(lock is not self._own for lock in self._watch.held):
            self._watch.forbid(f"waiting for {self._own.name}")
        return super().wait(timeout)


def watch_all(watch: Watch) -> None:
    """Replace the locks that the daemon's modules create in this process by watched ones.

    Also forbid blocking calls, sends, and calls of a backend under them. Must be called at the start of a process, and
    can't be undone.
    """
    from nnrt_hdi import backend

    def lock() -> Any:
        frame = _caller()
        return WatchedLock(watch, _name(frame)) if _is_ours(frame) else _real_lock()

    def rlock() -> Any:
        frame = _caller()
        return WatchedLock(watch, _name(frame), is_reentrant=True) if _is_ours(frame) else _real_rlock()

    def condition(lock: Any = None) -> Any:
        frame = _caller()
        if lock is None and _is_ours(frame):
            lock = WatchedLock(watch, _name(frame), is_reentrant=True)
        return WatchedCondition(watch, lock) if isinstance(lock, WatchedLock) else _real_condition(lock)

    for owner, names in _WAITS:
        for name in names:
            setattr(owner, name, _forbidden(watch, f"{owner.__name__}.{name}", getattr(owner, name)))

    class WatchedQueue(queue.SimpleQueue):  # type: ignore[type-arg]
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if block:
                watch.forbid("SimpleQueue.get")
            return super().get(block, timeout)

    queue.SimpleQueue = WatchedQueue  # type: ignore[misc]
    threading.Lock, threading.RLock, threading.Condition = lock, rlock, condition  # type: ignore[misc,assignment]
    load = backend.load_backend
    backend.load_backend = lambda *arguments: _guarded(watch, load(*arguments))

    from nnrt_device_service.memory.memory_budget import MemoryBudget

    # It may call code that frees memory.
    MemoryBudget.reserve = _forbidden(watch, "MemoryBudget.reserve", MemoryBudget.reserve)  # type: ignore[method-assign]


def _guarded(watch: Watch, thing: Any) -> Any:
    """Forbid calls of a backend's object under a lock, and calls of the objects that its methods return."""
    from nnrt_hdi.backend import Backend, PreparedModel
    from nnrt_hdi.device_buffers import DeviceBuffer

    kind = type(thing)
    for base in (Backend, PreparedModel, DeviceBuffer):
        if isinstance(thing, base) and "is_guarded" not in vars(kind):
            kind.is_guarded = True
            for name, method in vars(base).items():
                if callable(method) and not name.startswith("_"):
                    setattr(kind, name, _forbidden(watch, f"the backend's {name}", getattr(kind, name)))
    return thing


def _forbidden(watch: Watch, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        if _caller().f_code is not _STARTS_THREAD:
            watch.forbid(what)
        return _guarded(watch, function(*arguments, **named))

    return checked


def _caller() -> FrameType:
    """Return the frame of the caller's caller."""
    here = inspect.currentframe()
    assert here is not None and here.f_back is not None and here.f_back.f_back is not None
    return here.f_back.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _ROOMS


def _name(frame: FrameType) -> str:
    """Return the name of the class whose constructor creates the lock, else the code location."""
    made = frame.f_locals.get("self")
    for kind in type(made).__mro__:
        if getattr(vars(kind).get("__init__"), "__code__", None) is frame.f_code:
            return kind.__name__
    return f"{frame.f_globals['__name__']}:{frame.f_lineno}"


def _stack() -> str:
    return "".join(traceback.format_stack(limit=14)[:-3])


def _tell(said: str) -> None:
    os.write(2, f"{said}\n".encode())


def become(command: Sequence[str]) -> None:
    """Run the module that a `python -m` command names in this process.

    Removes this file's folder from sys.path, because it is also the folder of a package.
    """
    sys.path.remove(str(Path(__file__).parent))
    sys.argv = list(command[command.index("-m") + 1 :])
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    watch_all(Watch(_tell))
    become(sys.argv)
