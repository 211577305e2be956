"""Connections in a child of os.fork: they are dead there, and no thread waits for locks that the parent had.

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

    By default Python's gRPC has them half on: they start threads in a child, which may crash there. gRPC reads the
    variable once, when it is loaded.
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
    """Object with locks that another thread may have at the moment of a fork."""

    def __init__(self) -> None:
        self._make_locks()
        _owners.add(self)

    def _make_locks(self) -> None:
        """Make the object's locks, if it has any; a child calls this again, in its only thread."""

    def _enter_child(self, reason: NnrtError) -> None:
        """Give up, in a child, whatever only the parent's threads could end."""


class ModuleLock(LockOwner):
    """Lock of a module, used as `with lock.itself`.

    An exception from a signal handler can't come into the middle of that.
    """

    def _make_locks(self) -> None:
        self.itself = threading.RLock()


def is_child() -> bool:
    """Return whether this process can't have connections, because it was forked from one that had."""
    return _is_child


def require_original_process() -> None:
    """Raise UnavailableDevice in a process that can't have connections."""
    if _is_child:
        raise UnavailableDevice(_REASON)


def spoil_children() -> None:
    """Record that this process uses gRPC from now on, so that its children can't have connections."""
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
            # Never freed: its gRPC objects would wait in their destructors for threads that don't exist here.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


os.register_at_fork(after_in_child=_enter_all)
