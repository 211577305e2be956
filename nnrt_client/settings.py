"""Settings of a runtime, and what holds without them."""

import os
import threading
from dataclasses import dataclass, field

from nnrt_client.tracing.choice import require_open_telemetry
from nnrt_hdi.compression import FEATURE
from nnrt_hdi.errors import InvalidParameter

DEVICES_VARIABLE = "NNRT_DEVICES"
TLS_CA_VARIABLE = "NNRT_TLS_CA"
TLS_SERVER_NAME_VARIABLE = "NNRT_TLS_SERVER_NAME"
TLS_CERT_VARIABLE = "NNRT_TLS_CERT"
TLS_KEY_VARIABLE = "NNRT_TLS_KEY"
TOKEN_FILE_VARIABLE = "NNRT_TOKEN_FILE"  # noqa: S105
TRACE_VARIABLE = "NNRT_TRACE"
_COMPRESSIONS = ("none", FEATURE)


def addresses_from_environment() -> tuple[str, ...]:
    """Read the addresses and names in NNRT_DEVICES, which commas separate."""
    return tuple(address.strip() for address in os.environ.get(DEVICES_VARIABLE, "").split(",") if address.strip())


def addresses_to_ask_for(device: str | int | None) -> tuple[str, ...]:
    """Give the addresses and names where a device may be: what it is given by itself, else those of NNRT_DEVICES."""
    # What a device calls itself has no colon; all others have one.
    return (device,) if isinstance(device, str) and ":" in device else addresses_from_environment()


def _from_environment(variable: str) -> str:
    return field(default_factory=lambda: os.environ.get(variable, ""))


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of a Runtime, in seconds, how it sends, and who it is to daemons."""

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
    # PEM file of the authorities that daemons' certificates must be of: TLS on every TCP address; empty: none.
    tls_ca: str = _from_environment(TLS_CA_VARIABLE)
    # Host that daemons' certificates must be for, in place of the one in their address: such as addresses that a name
    # server gives; empty: that one.
    tls_server_name: str = _from_environment(TLS_SERVER_NAME_VARIABLE)
    # PEM files of this client's own certificate and its key, for daemons that ask for one.
    tls_cert: str = _from_environment(TLS_CERT_VARIABLE)
    tls_key: str = _from_environment(TLS_KEY_VARIABLE)
    # File with the token that says to daemons who this client is. It is sent over TLS, or on one host.
    token_file: str = _from_environment(TOKEN_FILE_VARIABLE)
    # gRPC channel options that come on top of ours.
    channel_options: tuple[tuple[str, str | int], ...] = field(default=())
    # Whether each run and each build is a span of OpenTelemetry; needs the extra `tracing`.
    trace: bool = field(default_factory=lambda: os.environ.get(TRACE_VARIABLE, "") not in ("", "0"))

    def __post_init__(self) -> None:
        if self.compression not in _COMPRESSIONS:
            raise InvalidParameter(
                f"compression is {self.compression!r}; use {' or '.join(map(repr, _COMPRESSIONS))}", place="Settings"
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidParameter(
                f"tls_cert is {self.tls_cert!r} and tls_key {self.tls_key!r}; give both or neither", place="Settings"
            )
        for name in ("tls_cert", "tls_server_name"):
            if getattr(self, name) and not self.tls_ca:
                what = f"{name} is given without tls_ca; give the daemons' authority too"
                raise InvalidParameter(what, place="Settings")
        if self.trace:
            require_open_telemetry("Settings.trace")
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "reconnect_timeout_s" and value == 0:
                continue
            if name.endswith("_s") and not (isinstance(value, int | float) and 0 < value <= threading.TIMEOUT_MAX):
                raise InvalidParameter(
                    f"{name} is {value!r}; use a number of seconds above 0, of at most a century", place="Settings"
                )
