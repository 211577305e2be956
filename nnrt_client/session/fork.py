"""Behaviour after os.fork: in a child, connections are dead, and objects get new locks so that no thread blocks.

gRPC's threads don't exist in a child, and without them neither an inherited channel nor a new one works
(docs/adr/0004-reconnection.md).
"""

import ctypes
import importlib
import os
import threading
import weakref

from nnrt_hdi.errors import NnrtError, UnavailableDevice

_REASON = (
    "this process was forked after a connection was made, which gRPC does not survive; start it with multiprocessing's"
    " 'spawn', or fork before the first connection"
)

_owners: "weakref.WeakSet[LockOwner]" = weakref.WeakSet()
_uses_grpc = False
_is_child = False


_GRPC_HANDLERS = "GRPC_ENABLE_FORK_SUPPORT"


def _load_grpc() -> None:
    """Load gRPC without its own fork handlers, unless the environment asks for them.

    By default a part of these handlers is active: they start threads in a child, which may crash it. gRPC reads the
    environment variable only when it is loaded.
    """
    if _GRPC_HANDLERS in os.environ:
        importlib.import_module("grpc")
        return
    os.environ[_GRPC_HANDLERS] = "0"
    try:
        importlib.import_module("grpc")
    finally:
        del os.environ[_GRPC_HANDLERS]


_load_grpc()


class LockOwner:
    """Base of objects with locks, which another thread may have locked at the moment of a fork."""

    def __init__(self) -> None:
        self._make_locks()
        _owners.add(self)

    def _make_locks(self) -> None:
        """Make the object's locks, if it has any. Called again in a forked child, where only one thread exists."""

    def _enter_child(self, reason: NnrtError) -> None:
        """End, in a forked child, everything that needs the parent's threads."""


class ModuleLock(LockOwner):
    """Lock of a module, used as `with lock.itself`.

    `itself` is a plain RLock, so that an exception of a signal handler can't leave it locked.
    """

    def _make_locks(self) -> None:
        self.itself = threading.RLock()


def is_child() -> bool:
    """Return whether this process was forked from one with connections, and so can't have any."""
    return _is_child


def require_original_process() -> None:
    """Raise UnavailableDevice in a process that was forked from one with connections."""
    if _is_child:
        raise UnavailableDevice(_REASON)


def spoil_children() -> None:
    """Record that this process uses gRPC from now on, so that forked children can't have connections."""
    global _uses_grpc
    _uses_grpc = True


def _enter_all() -> None:
    global _is_child
    _is_child = _is_child or _uses_grpc
    owners = list(_owners)
    for owner in owners:
        owner._make_locks()
    for owner in owners:
        if _is_child:
            owner._enter_child(UnavailableDevice(_REASON))
            # Never free it: the destructors of gRPC's objects would wait for threads that don't exist here.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


os.register_at_fork(after_in_child=_enter_all)
