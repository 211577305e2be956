"""Pool of devices that an application uses as one.

with Pool(["10.0.0.1:50051", "10.0.0.2:50051"]) as pool, pool.load("model.onnx", replicas=2) as session:
    outputs = session.run({"x": array})
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields

from typing_extensions import Unpack

from nnrt_client.build.build_task import Progress
from nnrt_client.model.model import Model
from nnrt_client.model_session.loading import Loading, LoadOptions, Once
from nnrt_client.model_session.model_session import ModelSession
from nnrt_client.model_session.opened_model import Source
from nnrt_client.pool.attempts import Rule
from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.dispatcher import PoolDispatcher
from nnrt_client.pool.fleet import Fleet
from nnrt_client.pool.hedging import Hedger, Hedging
from nnrt_client.pool.loads import Wanted
from nnrt_client.pool.member import Member
from nnrt_client.pool.replica import Loaded
from nnrt_client.pool.replicas import Replicas
from nnrt_client.pool.report import PoolReport
from nnrt_client.run.executor import Executor
from nnrt_client.session.device import Device
from nnrt_client.session.reasons import joined_reasons
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import DEVICES_VARIABLE, Settings
from nnrt_client.tracing.choice import tracer_of
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, UnavailableDevice

RETRIES = 2
PATIENCE_S = 10.0
_DEFAULT_RULE = Rule(RETRIES, PATIENCE_S)


class PooledSession(ModelSession):
    """Model on several devices; each run goes to one. Made by `Pool.load`, or by `load` with several devices."""

    def __init__(self, executor: Executor, replicas: Replicas, pool: "Pool", resources: ExitStack) -> None:
        """Make a session of one or more replicas, which closes `resources` when it is closed."""
        self._pool = pool
        self._replicas = replicas
        first = replicas.roster.everywhere[0].loaded
        super().__init__(executor, first.device, first.report, resources)

    def __repr__(self) -> str:
        names = ", ".join(device.name for device in self.devices) or "no device now"
        return f"<ModelSession on {names}: {', '.join(self._inputs)} -> {', '.join(self._outputs)}>"

    @property
    def pool(self) -> "Pool":
        """Pool that the session belongs to."""
        return self._pool

    @property
    def device(self) -> Device:
        """First of the devices that run the model now; if none does, one that has run it."""
        return next(iter(self.devices), self._device)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that run the model now."""
        return tuple(replica.loaded.device for replica in self._replicas.serving)

    @property
    def report(self) -> PoolReport:
        """Report of the first device, with the reports of all replicas, and why other devices have no replica."""
        roster = self._replicas.roster
        reports = roster.reports
        first = next(iter(reports.values()), self._report)
        refused = {address: str(error) for address, error in roster.reasons(self._pool._candidates).items()}
        return PoolReport(
            **{each.name: getattr(first, each.name) for each in fields(first)}, replicas=reports, refused=refused
        )

    def resize(self, replicas: int | None) -> None:
        """Change the number of devices that get the model, and return at once; no run fails.

        More devices join as soon as they can. A device that leaves ends its runs first; `devices` has those that stay.

        Args:
            replicas: The number; None for all devices.

        Raises:
            InvalidParameter: The number is below 1.
            OperationForbidden: The session is closed.
            NnrtError: The model must be read to choose devices, and can't be.
        """
        _require_count("replicas", replicas, 1, "PooledSession.resize")
        self._require_open()
        self._replicas.resize(replicas)


class Pool(Closable):
    """Devices of a runtime; each run goes to the one that will probably finish it first.

    The pool watches its daemons: one that shuts down gets no new runs; one that dies is replaced by another device,
    where there is one, and taken back when it returns. A context manager: leaving it ends the sessions of the pool.

    Args:
        devices: Addresses and names as for Runtime; without them those of NNRT_DEVICES.
        settings: Settings of the runtime that the pool makes.
        runtime: Runtime to use instead, which several pools may share.

    Raises:
        InvalidParameter: `runtime` is given together with `devices` or `settings`, or Runtime refuses these.
    """

    def __init__(
        self, devices: Sequence[str] | None = None, *, settings: Settings | None = None, runtime: Runtime | None = None
    ) -> None:
        if runtime is not None and (devices is not None or settings is not None):
            raise InvalidParameter("a runtime has its devices and settings; give it alone", place="Pool")
        self._stack = ExitStack()
        with self._stack:
            runtime = runtime or self._stack.enter_context(Runtime(devices, settings))
            self._fleet = Fleet(runtime)
            self._stack.callback(self._fleet.close)
            self._stack = self._stack.pop_all()

    def load(
        self,
        model: Source | Model,
        *,
        replicas: int | None = None,
        retries: int = RETRIES,
        patience_s: float = PATIENCE_S,
        hedging: Hedging | None = None,
        same_numbers: bool = False,
        warm_up: Callable[[ModelSession], object] | None = None,
        progress: Progress | None = None,
        wait_s: float = 0.0,
        **how: Unpack[LoadOptions],
    ) -> PooledSession:
        """Make a model ready to run on devices of the pool, and return a session.

        It returns when there are as many replicas as are wanted, or all devices have been tried. There is one replica
        at least; others join as soon as they can. A run that a device fails, or whose daemon dies, is made again on
        another device, unless it has tensors.

        Args:
            model: As for `load`.
            replicas: Number of devices that get the model; without it all.
            retries: How often a run is made again at most, within its time.
            patience_s: How long a run waits for a replica when there is none left, before it raises UnavailableDevice.
            hedging: When a run that takes long is started on a second device as well; without it never.
            same_numbers: Whether only devices of the most frequent kind take part, with one version of one backend, so
                that all replicas compute the same numbers.
            warm_up: Called with the model on each device, in another thread, before runs go there. If it raises an
                error, the device doesn't get the model.
            progress: Called as by `Compilation.build`.
            wait_s: How long to wait for the first device, if none can be reached.
            **how: Options about the model, see `LoadOptions`.

        Returns:
            Session that sends each run to one of the replicas.

        Raises:
            UnavailableDevice: No device can be reached; the message has each address and its reason.
            OperationFailed: Devices have different reasons; the message has all of them.
            NnrtError: Other errors of `load`.
        """
        with ExitStack() as stack:
            return self._session(
                Loading(model, **how),
                stack,
                replicas=replicas,
                progress=progress,
                wait_s=wait_s,
                rule=Rule(retries, patience_s),
                hedging=hedging,
                same_numbers=same_numbers,
                warm_up=warm_up,
            )

    def members(self) -> list[Member]:
        """Return what the pool knows of its devices now."""
        return self._fleet.members()

    def close(self) -> None:
        """End the sessions of the pool. Calling it again does nothing."""
        self._stack.close()

    @property
    def _candidates(self) -> list[Candidate]:
        return self._fleet.candidates

    def _session(
        self,
        loading: Loading,
        stack: ExitStack,
        *,
        replicas: int | None,
        progress: Progress | None,
        wait_s: float = 0.0,
        rule: Rule = _DEFAULT_RULE,
        hedging: Hedging | None = None,
        same_numbers: bool = False,
        warm_up: Callable[[ModelSession], object] | None = None,
    ) -> PooledSession:
        """Make the session for `load`; the session takes over the resources that the stack closes."""
        require_wait(wait_s)
        _require_count("replicas", replicas, 1, "Pool.load")
        _require_count("retries", rule.retries, 0, "Pool.load")

        def place(device: Device, check_wanted: Callable[[], None]) -> Loaded:
            def report_progress(stage: str, fraction: float) -> None:
                check_wanted()
                if progress is not None:
                    progress(stage, fraction)

            with ExitStack() as own:
                loaded = loading.load_on(lambda: device, own, report_progress)
                if warm_up is not None:
                    own.callback(loaded.close)
                    warm_up(loaded)
                    own.pop_all()
                return loaded

        digest = Once(lambda: loading.digest)
        if replicas is not None:
            digest()
        wanted = Wanted(replicas, same_numbers, digest)
        fleet = self._fleet
        placed = Replicas(place, wanted, fleet.wake, fleet.call_back, fleet.begin_soon)
        stack.callback(placed.close)
        fleet.add(placed)
        placed.wait_settled()
        if not placed.serving and wait_s:
            placed.wait_first(wait_s)
        if not placed.serving:
            raise _no_replica_error(fleet, placed)
        hedger = Hedger(hedging) if hedging else None
        tracer = tracer_of(fleet.runtime._settings.trace)
        executor = stack.enter_context(Executor._of(PoolDispatcher(placed, rule, hedger, tracer)))
        return PooledSession(executor, placed, self, stack.pop_all())


def replicas_of(session: PooledSession) -> Replicas:
    """Return the replicas from which a session chooses."""
    return session._replicas


def require_wait(wait_s: float) -> None:
    """Raise InvalidParameter unless `wait_s` is a number of seconds."""
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not wait_s >= 0:
        raise InvalidParameter(f"wait_s is {wait_s!r}; use a number of seconds, 0 or more")


def _require_count(name: str, given: int | None, least: int, place: str) -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < least):
        raise InvalidParameter(f"{name} is {given!r}; use a whole number of {least} or more", place=place)


def _no_replica_error(fleet: Fleet, placed: Replicas) -> NnrtError:
    """Return the error for a model that no device has taken: the only reason, or one error with all reasons."""
    if placed.end_reason is not None:
        return placed.end_reason.copy()
    reasons = placed.roster.reasons(fleet.candidates)
    reasons |= {name: UnavailableDevice(why) for name, why in fleet.runtime._members.failures().items()}
    if not reasons:
        return OperationFailed(f"no addresses are known; give those of devices, or set {DEVICES_VARIABLE}")
    return joined_reasons(reasons)
