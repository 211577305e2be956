"""Settings of a daemon: their options, environment variables, defaults and meanings."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import click
from typing_extensions import Self

from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import ReturnCode
from nnrt_hdi.errors import InvalidParameter, OutOfMemory, UnavailableDevice
from nnrt_hdi.ports import is_on_this_host

MIB = 1 << 20
GIB = 1 << 30
_DAY_S = 86_400.0
# Upper limit of counts: more than a daemon has threads for.
_MANY = 1 << 16

# Upper limit of sizes: the most that a file or an address space can have.
_MOST_BYTES = (1 << 63) - 1
# Flags that are passed to the backend as options of the same name. A backend without such an option refuses it.
_OPTIONS_WITH_A_FLAG = ("provider", "device_index")

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class LimitReached(OutOfMemory, code=ReturnCode.MEMORY_ERROR, status="RESOURCE_EXHAUSTED"):
    """Error: the limit of the option `setting` would be exceeded. Clients get an OutOfMemory."""

    def __init__(self, message: str, setting: str, *, place: str = "") -> None:
        super().__init__(message, place=place)
        self.setting = setting

    def _placed(self, place: str) -> Self:
        return type(self)(self.message, self.setting, place=place)


class DeviceOut(UnavailableDevice, code=ReturnCode.UNAVAILABLE_DEVICE, status="UNAVAILABLE"):
    """Error: the canary has taken the device out of service. Clients get an UnavailableDevice."""

    setting = "--canary"


def _setting(
    default: Any, help: str, least: float | None = None, most: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"help": help, "least": least, "most": most, "choices": choices})


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of `nnrt-device serve`.

    Each comes from its flag, such as `--session-bytes`, else from its environment variable, such as
    NNRT_DEVICE_SESSION_BYTES, else it has its default.
    """

    backend: str = _setting("reference", "Backend that serves the device; see `nnrt-device backends`.")
    listen: tuple[str, ...] = _setting(
        ("127.0.0.1:0",),
        "Address to listen on, HOST:PORT (port 0: any free one) or unix:PATH. May be repeated.",
    )
    tls_cert: str = _setting(
        "", "PEM file of the daemon's certificate, for TLS on every TCP address. Read again on change."
    )
    tls_key: str = _setting("", "PEM file of that certificate's private key.")
    tls_client_ca: str = _setting(
        "", "PEM file of a certificate authority. Clients on TCP addresses need a certificate signed by it."
    )
    access: str = _setting(
        "", "File of the clients that may use the daemon, and their roles; empty: all clients. Read again on change."
    )
    audit_log: str = _setting(
        "", "File that gets a JSON line for each session, compilation and refusal; -: the standard error."
    )
    insecure: bool = _setting(False, "Listen beyond loopback although any client there may use the device.")
    health_listen: str = _setting(
        "",
        "Address, HOST:PORT, of a health service without TLS, which only says whether the daemon serves: for"
        " supervisors that can't use TLS, such as Kubernetes.",
    )
    metrics_listen: str = _setting(
        "",
        "Address, HOST:PORT, where Prometheus reads the daemon's metrics, with TLS if --tls-cert is given; needs"
        " `nnrt[metrics]`.",
    )
    metrics_identities: bool = _setting(
        False, "Serve metrics of each identity too; anyone who can reach the address learns who the clients are."
    )
    name: str = _setting("", "Name of the device, instead of the backend's; must be unique in a fleet.")
    announce: bool = _setting(
        False, "Announce the daemon by mDNS, for clients that use the address `mdns:///`; needs `nnrt[mdns]`."
    )
    announce_interface: tuple[str, ...] = _setting(
        (), "IP address of an interface to announce on, instead of all that lead to the daemon. May be repeated."
    )
    provider: str = _setting(
        "", "Provider that the backend uses (cpu, cuda, tensorrt, ...); the same as `--option provider=`."
    )
    device_index: str = _setting("", "Index of the provider's device; the same as `--option device_index=`.")
    option: tuple[str, ...] = _setting((), "Option of the backend, NAME=VALUE. May be repeated.")
    heartbeat_timeout_s: float = _setting(
        10.0, "Seconds without a message after which a client's connection counts as lost.", 0.1, _DAY_S
    )
    lease_s: float = _setting(
        3.0, "Seconds that a session is kept after its connection is lost; 0: it ends at once.", 0.0, _DAY_S
    )
    drain_timeout_s: float = _setting(30.0, "Seconds that runs under way get to finish after SIGTERM.", 0.0, _DAY_S)
    concurrent_runs: int = _setting(
        0, "Slots: runs on the device at a time, while others wait; 0: as many as the backend can use.", 0, _MANY
    )
    concurrent_compilations: int = _setting(
        0,
        "Models compiled, checked or restored at a time, while others wait; 0: one for two cores, at least two.",
        0,
        _MANY,
    )
    max_run_s: float = _setting(60.0, "Seconds that a run may be on the device; 0: no limit.", 0.0, _DAY_S)
    max_compile_s: float = _setting(600.0, "Seconds that compiling one model may take; 0: no limit.", 0.0, _DAY_S)
    identity_compile_s: float = _setting(
        1800.0,
        "Compile seconds that one identity may spend; spent seconds come back within an hour. 0: no limit.",
        0.0,
        _DAY_S,
    )
    stuck_s: float = _setting(
        30.0,
        "Seconds that a run may go on after it was to stop, or a compilation after --max-compile-s, until the daemon"
        " exits with code 75, to be started again; 0: never.",
        0.0,
        _DAY_S,
    )
    canary: float = _setting(
        0.0,
        "Seconds between runs of a small model with known outputs; while they are wrong, late or missing, the device"
        " takes no work. 0: no such runs.",
        0.0,
        _DAY_S,
    )
    canary_late_ms: float = _setting(
        100.0,
        "A canary run is late if it takes so many milliseconds more than usual, and also four times as long.",
        0.0,
        _DAY_S * 1e3,
    )
    canary_turn_s: float = _setting(
        0.0, "Seconds of waiting for a slot that make the canary late; 0: --max-run-s and --stuck-s.", 0.0, _DAY_S
    )
    canary_tolerance: float = _setting(
        0.0, "Allowed error of the canary's outputs, as a fraction of the largest, for devices that round.", 0.0, 1.0
    )
    queued_runs: int = _setting(1024, "Most runs that wait for the device; more are refused.", 0, _MANY)
    priority_ageing_s: float = _setting(
        1.0, "Seconds without a slot after which a user's runs of one priority rise by one priority.", 0.001, _DAY_S
    )
    max_sessions: int = _setting(64, "Most sessions at a time; each client has one.", 1, _MANY)
    identity_share: float = _setting(
        0.75, "Share of --max-sessions, --held-bytes and --queued-runs that one identity may take.", 0.01, 1.0
    )
    host_connections: int = _setting(
        0,
        "Most connections of one host that have a session, or calls under way that need none. A 64-bit IPv6 network"
        " counts as one host. 0: twice --max-sessions.",
        0,
        _MANY,
    )
    session_models: int = _setting(64, "Most prepared models per session.", 1, _MANY)
    session_streams: int = _setting(
        8, "Most open streams per session: of runs, of uploads, from and to buffers.", 2, _MANY
    )  # At least one for runs and one for uploads.
    session_calls: int = _setting(16, "Most other calls per session at a time.", 1, _MANY)
    session_loops: int = _setting(16, "Most loops of sequences per session at a time.", 1, _MANY)
    session_buffers: int = _setting(256, "Most buffers per session in shared memory.", 0, _MANY)
    session_bytes: int = _setting(
        8 * GIB, "Most bytes of constants, buffers and large tensors of runs per session.", 0, _MOST_BYTES
    )
    held_bytes: int = _setting(
        0,
        "Most such bytes of all sessions together; 0: three eighths of the memory of the machine and its cgroups.",
        0,
        _MOST_BYTES,
    )
    batch: str = _setting(
        "",
        "MAX or MAX:DELAY_US: batch runs that wait for the device, up to MAX rows, of every model whose rows don't"
        " depend on each other and whose client doesn't set batching itself. With DELAY_US a run waits so many"
        " microseconds for others even if the device is free. Empty: only if clients ask for it.",
    )
    batch_across: str = _setting(
        "identity",
        "Whose runs may share a batch: those of one identity, or those of all identities.",
        choices=("identity", "identities"),
    )
    run_bytes: int = _setting(
        0,
        "Most bytes that all runs together may allocate at a time; 0: the default of --held-bytes.",
        0,
        _MOST_BYTES,
    )
    no_shared_memory: bool = _setting(False, "Offer clients on this host no local socket, and so no shared memory.")
    message_bytes: int = _setting(64 * MIB, "Most bytes of a message.", 64 * 1024, 2 * GIB - MIB)
    tensor_bytes: int = _setting(GIB, "Most bytes of a tensor that a run may allocate.", 1, _MOST_BYTES)
    store_dir: str = _setting("", "Directory of the model store; empty: none. Daemons may share it.")
    store_bytes: int = _setting(8 * GIB, "Most bytes of the model store on the disk.", 0, _MOST_BYTES)
    resident_bytes: int = _setting(
        0,
        "Most bytes of models on the device. A model beyond it takes the place of what no run has used for longest,"
        " which comes back from the store with its next run; needs --store-dir. 0: as --held-bytes allows.",
        0,
        _MOST_BYTES,
    )
    share_models: str = _setting(
        "auto",
        "Whose sessions may share a compiled model, which is then compiled once and takes memory once: those of one"
        " identity, those of all, or none. auto: all with --store-dir, which shares compiled models anyway, else"
        " identity.",
        choices=("auto", "identity", "all", "none"),
    )
    cache_key: str = _setting(
        "",
        "File of at least 32 secret bytes that sign exported caches. Clients need no role to restore a signed cache."
        " Some backends restore only signed ones; without this file their daemons make a secret themselves.",
    )
    accept_programs: str = _setting(
        "auto",
        "Accept model files in the backend's own format, such as ONNX files: always, never, or (auto) if --access says"
        " who may send them, or every address is loopback or a Unix socket.",
        choices=("auto", "always", "never"),
    )
    isolate: str = _setting(
        "auto",
        "Models that get a process of their own, so that a crash or stuck operator ends no other: programs (files in"
        " the backend's own format), all, or none. auto: programs where more than one identity may come (--access,"
        " --tls-client-ca, or an address that other hosts reach), else what the backend wants.",
        choices=("auto", "programs", "all", "none"),
    )
    traces: bool = _setting(
        False,
        "Make OpenTelemetry spans of what clients trace; the SDK's variables OTEL_* say where they go. Needs"
        " `nnrt[tracing]`.",
    )
    verbose: bool = _setting(False, "Log every call.")
    log_format: str = _setting(
        "text", "Format of the log: text, or one line of JSON for each event.", choices=("text", "json")
    )
    report_dir: str = _setting(
        "",
        "Directory of the reports that SIGUSR1 asks for; empty: the host's directory for temporary files, or the state"
        " directory of its supervisor.",
    )

    @property
    def takes_programs(self) -> bool:
        """True if clients may send model files in the backend's own format."""
        return self.accept_programs == "always" or (
            self.accept_programs == "auto" and (bool(self.access) or all(map(is_on_this_host, self.listen)))
        )

    @property
    def sharing(self) -> str:
        """Whose sessions may share a compiled model: identity, all or none."""
        return self.share_models if self.share_models != "auto" else "all" if self.store_dir else "identity"

    @property
    def batching(self) -> Batching | None:
        """Parsed value of --batch, or None if it is empty; raises InvalidParameter."""
        try:
            return Batching.of(self.batch) if self.batch else None
        except InvalidParameter as error:
            raise InvalidParameter(error.message, place="--batch") from error

    def share_of(self, whole: int) -> int:
        """Return the share of a limit that one identity may take, rounded up."""
        return math.ceil(whole * self.identity_share)

    @property
    def connections_of_a_host(self) -> int:
        """Most connections of one host.

        The default is two for each session: one may resume the session of another.
        """
        return self.host_connections or 2 * self.max_sessions

    def require_guarded(self, address: str) -> None:
        """Raise InvalidParameter if other hosts can reach an address and clients need neither token nor certificate."""
        is_guarded = self.tls_cert and (self.tls_client_ca or self.access)
        if not (is_guarded or self.insecure or is_on_this_host(address)):
            raise InvalidParameter(
                "other hosts can reach it and could use the device; give --tls-cert and --tls-key with"
                " --access or --tls-client-ca (`nnrt-device keys` makes the files), or --insecure",
                place=f"address {address!r}",
            )

    def backend_options(self) -> dict[str, str]:
        """Return the options of the backend; raise click.BadParameter for an invalid --option."""
        options = {}
        for pair in self.option:
            name, equals, value = pair.partition("=")
            if not equals:
                raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--option")
            options[name] = value
        for name in _OPTIONS_WITH_A_FLAG:
            value = getattr(self, name)
            if value and options.setdefault(name, value) != value:
                message = f"it is {value!r} and option {name} {options[name]!r}; give one of them"
                raise click.BadParameter(message, param_hint=_flag(name))
        return options


class _NumberRange(click.FloatRange):
    """Range of numbers that rejects NaN, which click's range accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


PATHS = ("tls_cert", "tls_key", "tls_client_ca", "access", "audit_log", "store_dir", "cache_key", "report_dir")
"""Settings that name a file or directory. (`listen` may also have a path, after unix:, and `audit_log` may be -.)"""


def setting_options(function: FunctionT) -> FunctionT:
    """Add every setting as an option to a click command."""
    for entry in reversed(fields(Settings)):
        function = setting_option(entry.name)(function)
    return function


def setting_option(name: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator that adds one setting as an option to a click command."""
    (entry,) = (entry for entry in fields(Settings) if entry.name == name)
    multiple = isinstance(entry.default, tuple)
    least = entry.metadata["least"]
    kind: Any
    metavar = None
    if entry.metadata["choices"]:
        kind = click.Choice(entry.metadata["choices"])
    elif least is None:
        kind = None if multiple else type(entry.default)
    else:
        is_whole, most = isinstance(entry.default, int), entry.metadata["most"]
        kind = (click.IntRange if is_whole else _NumberRange)(least, most)
        metavar, kind.name = "NUMBER", f"{'whole ' if is_whole else ''}number of {least:g} to {most:,g}"
    return click.option(
        _flag(name),
        entry.name,
        default=entry.default,
        multiple=multiple,
        metavar=metavar,
        is_flag=entry.default is False,
        type=None if entry.default is False else kind,
        envvar=variable_of(name),
        show_envvar=True,
        show_default=True,
        help=entry.metadata["help"],
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """Return the name of a setting's environment variable."""
    return f"NNRT_DEVICE_{name.upper()}"


@click.command(add_help_option=False)
@setting_options
def _parsed(**values: Any) -> Settings:
    return Settings(**values)


def parsed(arguments: Sequence[str]) -> Settings:
    """Return the settings that `nnrt-device serve` has with these arguments; raise click.UsageError."""
    settings: Settings = _parsed.main(list(arguments), "serve", standalone_mode=False)
    return settings


def setting_flags() -> dict[str, click.Option]:
    """Return the click option of every setting, by its flag without the leading dashes."""
    return {_flag(option.name or "")[2:]: option for option in _parsed.params if isinstance(option, click.Option)}
