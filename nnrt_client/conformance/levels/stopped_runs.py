"""Checks of the level `concurrency` with runs that must stop: cancelled, expired, or abandoned by their client."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

from nnrt_client.conformance.levels.check import NotOffered, require
from nnrt_client.conformance.levels.long_model import LongModel, find_long_model, try_with_long_model
from nnrt_client.conformance.levels.streams import Stream, cancel, new_run_id, run_frame
from nnrt_client.conformance.levels.subjects import prepared_subject, require_answer
from nnrt_client.conformance.outcome import quote_error
from nnrt_client.conformance.target import Breach, Connection, Target
from nnrt_hdi.counters import FEATURE as COUNTERS
from nnrt_hdi.errors import NnrtError, TimedOut, UnavailableDevice

_LONG_MS = 600_000
# On a busy machine a run may stop late often, but not always.
_TRIES = 20
# Number of whole runs to compare a stopped run with, as some of them may be slow.
_CONFIRMATIONS = 3
# Fractions of a whole run's duration: when to stop the run, and when it must have ended.
_STOP_AT, _ENDED_BY = 0.2, 0.6
_MOST_SLOTS = 16


def stops_cancelled_runs(target: Target) -> None:
    """Check that a cancelled run ends at the next operator, long before it would have completed."""
    with target.session() as connection:
        try_with_long_model(connection, partial(_stops_cancelled, connection))
        subject, prepared = prepared_subject(connection)
        with prepared:
            given = subject.question(1)
            require_answer(subject, given, prepared.run([given]), "after a run of another model was cancelled")


def _stops_cancelled(connection: Connection, model: LongModel) -> None:
    with Stream(connection) as stream:

        def stopped(after_s: float) -> tuple[NnrtError | None, float]:
            run_id = new_run_id()
            stream.send(run_frame(model.prepared, [model.given], run_id=run_id))
            began = _wait(after_s)
            cancel(connection, run_id)
            error, ended = stream.outcome()
            return error, ended - began

        _require_early(model, stopped, "a run that is cancelled")


def stops_runs_at_their_deadline(target: Target) -> None:
    """Check that a run whose time expires on the device ends with TIMEOUT at the next operator."""
    with target.session() as connection:
        try_with_long_model(connection, partial(_stops_expired, connection))


def _stops_expired(connection: Connection, model: LongModel) -> None:
    with Stream(connection) as stream:

        def expired(after_s: float) -> tuple[NnrtError | None, float]:
            began = time.monotonic()
            stream.send(run_frame(model.prepared, [model.given], timeout_ms=max(int(after_s * 1000), 1)))
            error, ended = stream.outcome()
            if error is not None and not isinstance(error, TimedOut):
                raise Breach(f"a run whose time is over ends with {quote_error(error)}; TIMEOUT is right")
            return error, ended - began

        _require_early(model, expired, "a run whose time is a part of what it takes")
        stream.send(run_frame(model.prepared, [model.given], timeout_ms=_LONG_MS))
        stream.await_reply()


def _require_early(model: LongModel, stop: Callable[[float], tuple[NnrtError | None, float]], what: str) -> None:
    """Raise Breach unless stopping a run ends it early with an error at least once, and never leaves anything behind.

    `stop` gets the seconds after which to stop the run, a fraction of the fastest whole run so far: the model may have
    been chosen while other work slowed it down. Raises RunTooShort if whole runs have become too short to tell.
    """
    latest, whole_s = "", model.took_s
    for _ in range(_TRIES):
        error, took_s = stop(_STOP_AT * whole_s)
        if isinstance(error, UnavailableDevice):
            raise error
        for _ in range(_CONFIRMATIONS):
            whole_s = min(whole_s, model.time_run(f"after {what}"))
            if error is None or took_s >= _ENDED_BY * whole_s:
                break
        else:
            return
        model.require_long(whole_s)
        how = "gives an answer" if error is None else f"ends with {error.code.name}"
        latest = f"{how} after {took_s:.3f} s, of the {whole_s:.3f} s that a whole run of {model.nodes} nodes takes"
    raise Breach(f"{what} {latest}; look at the cancellation between operators at least")


def _wait(seconds: float) -> float:
    """Wait, and return the time.monotonic() from before the wait."""
    began = time.monotonic()
    threading.Event().wait(seconds)
    return began


def starts_nothing_late(target: Target) -> None:
    """Check that a waiting run ends with TIMEOUT when its time expires, and never starts when it is cancelled."""
    with target.session() as connection:
        if COUNTERS not in connection.session.welcome.features:
            raise NotOffered("the daemon doesn't say how many runs are on the device at a time")
        load = connection.device.counters().load
        if load is None or load.slots > _MOST_SLOTS:
            raise NotOffered("the daemon has no bounded number of runs on the device at a time")
        try_with_long_model(connection, partial(_starts_nothing_late, connection, load.slots))


def _starts_nothing_late(connection: Connection, slots: int, model: LongModel) -> None:
    for _ in range(_TRIES):
        if _waits_in_vain(connection, model, slots):
            return
    model.require_long(model.time_run("after runs that waited in vain"))
    raise Breach(
        "of two runs that can't have begun before their time was over, or they were cancelled, one gave an answer"
    )


def _waits_in_vain(connection: Connection, model: LongModel, slots: int) -> bool:
    """Fill the device, and return True if two runs that wait for it end with errors, False if they ran."""
    with ExitStack() as stack:
        fillers = [stack.enter_context(Stream(connection)) for _ in range(slots)]
        ids = [new_run_id() for _ in fillers]
        for stream, run_id in zip(fillers, ids, strict=True):
            stream.send(run_frame(model.prepared, [model.given], run_id=run_id))
        _wait(_STOP_AT * model.took_s)
        expired, cancelled = (stack.enter_context(Stream(connection)) for _ in range(2))
        late = new_run_id()
        expired.send(run_frame(model.prepared, [model.given], timeout_ms=20))
        cancelled.send(run_frame(model.prepared, [model.given], run_id=late))
        in_time = expired.outcome()[0]
        cancel(connection, late)
        in_vain = cancelled.outcome()[0]
        cancel(connection, *ids)
        for stream in fillers:
            stream.outcome()
        if in_time is not None and not isinstance(in_time, TimedOut):
            raise Breach(f"a run that expires while it waits ends with {quote_error(in_time)}; TIMEOUT is right")
        return in_time is not None and in_vain is not None


def begins_no_run_that_was_cancelled(target: Target) -> None:
    """Check that a run cancelled before its arrival doesn't begin, and that cancelling unknown IDs is no error."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        with prepared, Stream(connection) as stream:
            given = subject.question(1)
            run_id = new_run_id()
            require(not list(cancel(connection, run_id)), "a run that has not come is said to be under way")
            stream.send(run_frame(prepared, [given], run_id=run_id))
            error, _ = stream.outcome()
            require(error is not None, "a run that was cancelled before it came gives an answer")
            done = new_run_id()
            stream.send(run_frame(prepared, [given], run_id=done))
            stream.await_reply()
            cancel(connection, done)
            require_answer(subject, given, prepared.run([given]), "after cancellations")


def outlives_clients_that_go(target: Target) -> None:
    """Check that a client that disconnects during its runs harms no other client."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        with prepared:
            with target.session() as leaving:
                model = find_long_model(leaving)
                future = model.prepared.executor.submit([model.given])
                _wait(_STOP_AT * model.took_s)
            with suppress(NnrtError):
                future.result(target.settings.run_timeout_s)
            given = subject.question(1)
            require_answer(subject, given, prepared.run([given]), "after another client went in the middle of a run")
