"""Settings of a runtime, and what holds without them."""

import os
import threading
from dataclasses import dataclass, field

from nnrt_hdi.compression import FEATURE
from nnrt_hdi.errors import InvalidParameter

DEVICES_VARIABLE = "NNRT_DEVICES"
_COMPRESSIONS = ("none", FEATURE)


def addresses_from_environment() -> tuple[str, ...]:
    """Read the addresses in NNRT_DEVICES, which commas separate."""
    return tuple(address.strip() for address in os.environ.get(DEVICES_VARIABLE, "").split(",") if address.strip())


def addresses_to_ask_for(device: str | int | None) -> tuple[str, ...]:
    """Give the addresses where a device may be: its own if it is given by one, else those of NNRT_DEVICES."""
    # A name has no colon; an address always has one.
    return (device,) if isinstance(device, str) and ":" in device else addresses_from_environment()


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of a Runtime, in seconds, and how it sends."""

    # After so long without a sign of life the connection counts as lost.
    heartbeat_timeout_s: float = 5.0
    # How long a lost daemon is looked for before it counts as dead; 0: not at all. One that was killed is dead at once
    # where its host says that nobody listens; a hung or stopped one costs a caller heartbeat_timeout_s and this.
    reconnect_timeout_s: float = 2.0
    # Reaching a daemon and opening a session.
    connect_timeout_s: float = 5.0
    # Short questions: status, dimension ranges, releasing something.
    query_timeout_s: float = 5.0
    # Asking what a device supports, allocating memory.
    request_timeout_s: float = 30.0
    # Compiling a model, its upload included.
    build_timeout_s: float = 600.0
    # A run for which no timeout is given.
    run_timeout_s: float = 3600.0
    # How long an address where no device was found is not asked again by those who want the first device.
    look_again_s: float = 1.0
    # After a call breaks off: how long the session may take to notice that the connection is lost.
    verdict_timeout_s: float = 1.0
    # Whether a daemon on this host gets tensors in shared memory, and runs without gRPC.
    share_memory: bool = True
    # How tensors and constants are compressed for their way over gRPC: "none", or "deflate" for slow links, without
    # loss. Device.compression_statistics says what that saves.
    compression: str = "none"
    # gRPC channel options that come on top of ours.
    channel_options: tuple[tuple[str, str | int], ...] = field(default=())

    def __post_init__(self) -> None:
        if self.compression not in _COMPRESSIONS:
            raise InvalidParameter(
                f"compression is {self.compression!r}; use {' or '.join(map(repr, _COMPRESSIONS))}", place="Settings"
            )
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "reconnect_timeout_s" and value == 0:
                continue
            if name.endswith("_s") and not (isinstance(value, int | float) and 0 < value <= threading.TIMEOUT_MAX):
                raise InvalidParameter(
                    f"{name} is {value!r}; use a number of seconds above 0, of at most a century", place="Settings"
                )
