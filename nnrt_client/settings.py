"""Settings of a client, each with its default and its description."""

import os
import threading
from dataclasses import dataclass, field
from typing import Any

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
    """Return the addresses and names in the environment variable NNRT_DEVICES, which are separated by commas."""
    return tuple(address.strip() for address in os.environ.get(DEVICES_VARIABLE, "").split(",") if address.strip())


def addresses_to_ask_for(device: str | int | None) -> tuple[str, ...]:
    """Return the addresses at which to look for a device: `device` if it is an address or name, else NNRT_DEVICES."""
    # Names of devices have no colon. Addresses and names that resolve to addresses have one.
    return (device,) if isinstance(device, str) and ":" in device else addresses_from_environment()


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


def _from_environment(variable: str, help: str) -> str:
    metadata = {"help": help, "variable": variable}
    return field(default_factory=lambda: os.environ.get(variable, ""), metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a Runtime: time limits in seconds, transport, and credentials."""

    heartbeat_timeout_s: float = _setting(5.0, "Silence after which the connection counts as lost.")
    reconnect_timeout_s: float = _setting(
        2.0,
        "How long a lost daemon is looked for before it counts as dead; 0: not at all. A daemon that was killed is dead"
        " at once if its host says that nobody listens.",
    )
    connect_timeout_s: float = _setting(5.0, "Limit for reaching a daemon and opening a session.")
    query_timeout_s: float = _setting(5.0, "Limit for short calls: status, dimension ranges, releasing something.")
    request_timeout_s: float = _setting(30.0, "Limit for asking what a device supports, and for allocating memory.")
    build_timeout_s: float = _setting(600.0, "Limit for compiling a model, with its upload.")
    run_timeout_s: float = _setting(3600.0, "Limit for a run without a timeout.")
    look_again_s: float = _setting(
        1.0, "How long an address where no device was found is not asked again by a search for the first device."
    )
    verdict_timeout_s: float = _setting(
        1.0, "After a call breaks off: how long the session may take to notice that the connection is lost."
    )
    share_memory: bool = _setting(
        True, "Whether a daemon on this host gets tensors in shared memory, and runs without gRPC."
    )
    compression: str = _setting(
        "none",
        "How tensors and constants are compressed over gRPC, without loss: none, or deflate for slow links."
        " Device.compression_statistics counts what that saves.",
    )
    tls_ca: str = _from_environment(
        TLS_CA_VARIABLE, "PEM file of the authorities of daemons' certificates: TLS on every TCP address; empty: none."
    )
    tls_server_name: str = _from_environment(
        TLS_SERVER_NAME_VARIABLE, "Host of daemons' certificates, if it is not the host of their address."
    )
    tls_cert: str = _from_environment(TLS_CERT_VARIABLE, "PEM file of this client's certificate.")
    tls_key: str = _from_environment(TLS_KEY_VARIABLE, "PEM file of the key of that certificate.")
    token_file: str = _from_environment(
        TOKEN_FILE_VARIABLE, "File with this client's token. It is sent over TLS, or on one host."
    )
    channel_options: tuple[tuple[str, str | int], ...] = _setting((), "More options of gRPC's channels.")
    trace: bool = field(
        default_factory=lambda: os.environ.get(TRACE_VARIABLE, "") not in ("", "0"),
        metadata={
            "help": "Whether runs and builds are spans of OpenTelemetry; needs nnrt[tracing].",
            "variable": TRACE_VARIABLE,
        },
    )

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
