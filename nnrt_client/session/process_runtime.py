"""The runtime that all of a process shares, for C functions name none.

It need not be closed before the interpreter exits: daemons free what a process leaves.
"""

from nnrt_client.session.fork import ModuleLock
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings

_lock = ModuleLock()
_runtime: Runtime | None = None
# What `connect` was given last.
_addresses: tuple[str, ...] = ()
_settings: Settings | None = None


def connect(*addresses: str, settings: Settings | None = None) -> Runtime:
    """Let `nnrt_client.oh_nn` use the devices at these addresses or names; without any, those of NNRT_DEVICES.

    What was connected before is closed, and what was made there is dead.
    """
    _replace(addresses, settings)
    return process_runtime()


def disconnect() -> None:
    """Close the process-wide runtime. The next use makes another from NNRT_DEVICES. Idempotent."""
    _replace((), None)


def process_runtime() -> Runtime:
    """The process-wide runtime, made on first use: from NNRT_DEVICES if `connect` named no addresses."""
    global _runtime
    with _lock.itself:
        if _runtime is None:
            _runtime = Runtime(_addresses or None, _settings)
        return _runtime


def _replace(addresses: tuple[str, ...], settings: Settings | None) -> None:
    global _runtime, _addresses, _settings
    with _lock.itself:
        former, _runtime = _runtime, None
        _addresses, _settings = addresses, settings
    if former is not None:
        former.close()
