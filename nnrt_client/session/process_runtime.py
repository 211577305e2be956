"""Runtime that the whole process shares, because NNRt's C functions name none.

It need not be closed before the interpreter exits: daemons free what a process leaves behind.
"""

from nnrt_client.session.fork import ModuleLock
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import Settings

_lock = ModuleLock()
_runtime: Runtime | None = None
# Arguments of the last `connect`.
_addresses: tuple[str, ...] = ()
_settings: Settings | None = None


def connect(*addresses: str, settings: Settings | None = None) -> Runtime:
    """Let `nnrt_client.oh_nn` use the devices at these addresses or names.

    The former runtime is closed, and what was made with it is dead.

    Args:
        addresses: Addresses and names as `Runtime` takes them; without any, those of NNRT_DEVICES.
        settings: Settings of the runtime's sessions.

    Returns:
        The runtime that the process shares now.
    """
    _replace(addresses, settings)
    return process_runtime()


def disconnect() -> None:
    """Close the process-wide runtime.

    The next use makes another one from NNRT_DEVICES. Calling this again does nothing.
    """
    _replace((), None)


def process_runtime() -> Runtime:
    """Return the process-wide runtime, made on first use.

    It has the addresses given to `connect`, or else those of NNRT_DEVICES.
    """
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
