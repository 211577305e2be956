"""Runtime that the whole process shares, because NNRt's C functions have no runtime argument.

It need not be closed before the interpreter exits: daemons free everything of a process that ends.
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
    """Set the devices that `nnrt_client.oh_nn` uses, by addresses or names.

    This closes the former runtime. Objects made with it can't be used any more.

    Args:
        addresses: Addresses and names as for `Runtime`; without any, those of NNRT_DEVICES.
        settings: Settings of the runtime's sessions.

    Returns:
        The runtime that the process shares now.
    """
    _replace(addresses, settings)
    return process_runtime()


def disconnect() -> None:
    """Close the process-wide runtime. The next use makes another one from NNRT_DEVICES. Idempotent."""
    _replace((), None)


def process_runtime() -> Runtime:
    """Return the process-wide runtime. The first use creates it.

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
