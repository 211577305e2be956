"""Checks of the level `sequences` with wrong operations, values and loops, each of which harms nothing else."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnrt_client.conformance.levels.check import NotOffered, expect_refusal
from nnrt_client.conformance.levels.remembering import (
    MOST,
    STOP,
    TOTAL,
    X,
    Y,
    adding,
    answering,
    appending,
    begin,
    make_loop,
    question,
    remembering,
    require_same,
    run_of_adding,
    run_of_answering,
    unharmed,
)
from nnrt_client.conformance.target import Connection, Prepared, Target
from nnrt_client.sequences.home import Home, Limits, LoopedRun
from nnrt_client.session.errands import call_in_worker
from nnrt_client.session.release import release_buffer
from nnrt_client.tensors.device_buffer import Kept
from nnrt_hdi.errors import InvalidParameter, OperationFailed, OutOfMemory, UnavailableDevice
from nnrt_hdi.sequences import MAX_READ, MAX_RUNS, MAX_STEPS, Keeping
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import device_pb2, sequence_pb2
from nnrt_hdi.wire.values import whole_value

_FLOAT32 = np.dtype(np.float32)
_UNKNOWN_ID, _OTHERS_ID, _NEW_ID = 2**63 - 1, 2**62, 2**61
# Number of a value that no sequence has.
_NO_VALUE = 99
_TOO_BIG = [2**31 - 1, 2**20]
_GIB, _ROOM = 1 << 30, 1 << 17
# Most buffers with which a check fills a session's memory, and most sequences in the room that is left.
_MOST_BUFFERS = 200
_MOST_SEQUENCES = 2000


def _run(home: Home, x: Array | Kept, total: Array | Kept) -> Array:
    """Make a run of `adding` whose state becomes TOTAL, and return y."""
    given = home.run([x, total], ((1, Keeping(TOTAL)),), (1,), None, None)
    y: Array = given[0]
    return y


def _go_on(prepared: Prepared, home: Home, total: Array, after: str) -> Array:
    """Check that a sequence goes on with the state `total`, and return the next state."""
    x = question(7)
    y, following = prepared.run([x, total])
    require_same(_run(home, x, Kept(_FLOAT32, TOTAL)), y, f"output 'y' of a sequence after {after}")
    return following


def refuses_unknown_sequences(target: Target) -> None:
    """Check that nobody reads, changes or copies a sequence that doesn't exist, or is another session's."""
    with remembering(target, adding()) as (_, [mine]), remembering(target, adding()) as (connection, [prepared]):
        others, ended = begin(mine, sequence_id=_OTHERS_ID), begin(prepared)
        ended.release()
        with unharmed(prepared, "calls for sequences that don't exist"):
            for what, sequence_id in (
                ("that never was", _UNKNOWN_ID),
                ("that has ended", ended.id),
                ("of another session", _OTHERS_ID),
            ):
                _require_unknown(connection, prepared, sequence_id, f"a sequence {what}")
        _go_on(mine, others, question(1), "calls for it in another session")


def _require_unknown(connection: Connection, prepared: Prepared, sequence_id: int, what: str) -> None:
    home = begin(prepared)
    own_id, home.id = home.id, sequence_id
    copies = sequence_pb2.SequenceWrite(sequence_id=_NEW_ID, copy_of=sequence_id)
    calls: Mapping[str, Callable[[], object]] = {
        "a read of": lambda: home.read([TOTAL]),
        "a write to": lambda: home.write({TOTAL: question(3)}),
        "a run of": lambda: _run(home, question(3), Kept(_FLOAT32, TOTAL)),
        "a loop of": lambda: make_loop(home, run_of_adding(prepared)),
        "a copy of": lambda: connection.call("Sequences.Write", iter([copies])),
    }
    for call, make in calls.items():
        with expect_refusal(f"{call} {what}", UnavailableDevice, InvalidParameter):
            make()
    connection.call("Sequences.Release", sequence_pb2.ReleaseSequenceRequest(sequence_id=sequence_id))
    home.id = own_id
    _go_on(prepared, home, question(1), f"calls for {what}")
    home.release()


def refuses_misplaced_operations(target: Target) -> None:
    """Check that an operation that has been, or comes too early, is refused, and changes nothing."""
    with remembering(target, adding()) as (_, [prepared]), unharmed(prepared, "misplaced operations"):
        home = begin(prepared)
        total = _go_on(prepared, home, question(1), "its beginning")
        right = home._operation
        kept = Kept(_FLOAT32, TOTAL)
        calls: Mapping[str, Callable[[], object]] = {
            "a run": lambda: _run(home, question(3), kept),
            "a write": lambda: home._write({TOTAL: question(3)}),
            "a loop": lambda: make_loop(home, run_of_adding(prepared)),
        }
        for call, make in calls.items():
            for operation in range(right):
                home._operation = operation
                what = f"has the number of operation {operation}, which has been" if operation else "opens it again"
                with expect_refusal(f"{call} of a sequence that {what}", InvalidParameter):
                    make()
            for operation in (right + 1, 2**63):
                home._operation = operation
                with expect_refusal(f"{call} of a sequence that is sent before its turn", OperationFailed):
                    make()
            home._operation = right
            total = _go_on(prepared, home, total, f"{call} that was misplaced")
            right = home._operation
        home.release()


def refuses_wrong_values(target: Target) -> None:
    """Check that incomplete and impossible values are refused, and those that don't exist or don't fit the model."""
    with remembering(target, adding()) as (connection, [prepared]), unharmed(prepared, "wrong values"):
        home, total = begin(prepared), question(1)
        value = sequence_pb2.SequenceValue
        right = whole_value(TOTAL, question(3))
        wrong: Mapping[str, list[sequence_pb2.SequenceValue]] = {
            "a value without its last byte": [_changed(right, data=right.data[:-1])],
            "a value with a byte too many": [_changed(right, data=right.data + b"\0")],
            "a value that comes twice": [right, right],
            "a value with a negative dimension": [_changed(right, dimensions=[-1])],
            "a value without a data type": [_changed(right, data_type=0)],
            "a value of an unknown data type": [_changed(right, data_type=9999)],
            "bytes of no value": [value(data=b"\0")],
            "a value beyond all memory": [_changed(right, dimensions=_TOO_BIG)],
        }
        for what, values in wrong.items():
            write = sequence_pb2.SequenceWrite(sequence_id=home.id, operation=home._operation, values=values)
            with expect_refusal(what, InvalidParameter, OutOfMemory):
                connection.call("Sequences.Write", iter([write]))
            if len(values) == 1:  # Here the last of two messages may count.
                _require_loop_refused(home, what, run_of_adding(prepared), write=write)
            total = _go_on(prepared, home, total, what)
        with expect_refusal("a read of a value that doesn't exist", InvalidParameter):
            home.read([X, _NO_VALUE])
        with expect_refusal("a read of too many values", InvalidParameter):
            home.read([X] * (MAX_READ + 1))
        with expect_refusal("a run that reads a value that doesn't exist", InvalidParameter):
            _run(home, question(3), Kept(_FLOAT32, _NO_VALUE))
        misfits: Mapping[str, Array] = {
            "with a row too few": question(3)[:-1],
            "of another rank": question(3).reshape(-1),
            "of another data type": question(3).astype(np.int32),
            "without elements": question(3)[:0],
        }
        for how, array in misfits.items():
            home.write({_NO_VALUE: array})
            with expect_refusal(f"a run that reads a state {how}", InvalidParameter):
                _run(home, question(3), Kept(_FLOAT32, _NO_VALUE))
            require_same(home.read([_NO_VALUE])[_NO_VALUE], array, f"a value {how}")
            total = _go_on(prepared, home, total, f"a run that reads a state {how}")
        home.release()


def _changed(value: sequence_pb2.SequenceValue, **fields: Any) -> sequence_pb2.SequenceValue:
    """Return a value with other fields."""
    changed = sequence_pb2.SequenceValue()
    changed.CopyFrom(value)
    for name in fields:
        changed.ClearField(name)
    changed.MergeFrom(sequence_pb2.SequenceValue(**fields))
    return changed


def refuses_wrong_states(target: Target) -> None:
    """Check that an output that can't be appended, or doesn't fit the next run, changes nothing."""
    with remembering(target, adding(), appending()) as (_, [prepared, rows]), unharmed(prepared, "wrong states"):
        home = begin(prepared)
        # The row y of `appending` comes from TOTAL and the row MOST.
        row, total = question(9, 1), question(1)
        home.write({MOST: row})
        signature = run_of_adding(rows).signature

        def appends(keeping: Keeping) -> LoopedRun:
            return LoopedRun(signature, (MOST, TOTAL), ((1, keeping),), {}, (keeping.value,))

        (made,) = make_loop(home, appends(Keeping(STOP, appends=True)), appends(Keeping(STOP, appends=True)))[1:]
        _, entry = rows.run([row, total])
        require_same(made[STOP], np.concatenate([entry, entry]), "an output that is appended twice")
        wrong: Mapping[str, tuple[Array, Keeping]] = {
            "to a value with other columns": (question(3)[:, :-1], Keeping(STOP, appends=True)),
            "to a value of another data type": (question(3).astype(np.int32), Keeping(STOP, appends=True)),
            "to a value of another rank": (question(3).reshape(-1), Keeping(STOP, appends=True)),
            "along another axis": (question(3), Keeping(STOP, appends=True, axis=1)),
            "along an axis that it hasn't": (question(3), Keeping(STOP, appends=True, axis=2)),
        }
        for how, (value, keeping) in wrong.items():
            home.write({STOP: value})
            with expect_refusal(f"an output that is appended {how}", InvalidParameter):
                make_loop(home, appends(keeping))
            require_same(home.read([STOP])[STOP], value, f"a value after an output that was to be appended {how}")
            total = _go_on(prepared, home, total, f"an output that was to be appended {how}")
        # The first step leaves one row where the model needs four.
        with expect_refusal("a loop whose state doesn't fit its second step", InvalidParameter):
            make_loop(home, appends(Keeping(TOTAL)), steps=3)
        _, entry = rows.run([row, total])
        require_same(home.read([TOTAL])[TOTAL], entry, "the state after the only step of a loop that was complete")
        home.release()


def refuses_wrong_loops(target: Target) -> None:
    """Check that loops without steps, with wrong glue or of unknown values are refused, and change nothing."""
    with remembering(target, adding(), answering(-1)) as (_, [prepared, other]), unharmed(prepared, "wrong loops"):
        home, total = begin(prepared), question(1)
        adds, glue = run_of_adding(prepared), run_of_answering(other)
        for steps in (0, MAX_STEPS + 1, 2**64 - 1):
            _require_loop_refused(home, f"a loop of {steps} steps", adds, steps=steps)
        _require_loop_refused(home, "a loop without runs")
        _require_loop_refused(home, f"a loop of more than {MAX_RUNS} runs", *[adds] * (MAX_RUNS + 1))
        total = _go_on(prepared, home, total, "loops that can't begin")
        home.write({MOST: question(3).astype(np.int32)})
        wrong: Mapping[str, tuple[LoopedRun, ...]] = {
            "whose glue reads a value of another data type": (adds, glue),
            "whose glue reads a value that doesn't exist": (adds, glue._replace(reads=(Y, _NO_VALUE))),
            "that stops by a value of another data type": (adds._replace(stop=Y),),
            "that stops by a value that doesn't exist": (adds._replace(stop=_NO_VALUE),),
            "that delivers a value that doesn't exist": (adds._replace(delivered=(_NO_VALUE,)),),
            "whose second run reads an input too few": (adds, adds._replace(reads=(X,))),
        }
        for what, runs in wrong.items():
            with expect_refusal(f"a loop {what}", InvalidParameter):
                make_loop(home, *runs, steps=2)
            require_same(home.read([TOTAL])[TOTAL], total, f"the state after a loop {what}")
            total = _go_on(prepared, home, total, f"a loop {what}")
        home.release()


def _require_loop_refused(home: Home, what: str, *runs: LoopedRun, steps: int = 1, write: Any = None) -> None:
    """Raise Breach unless the request of a loop is refused as a whole."""
    request = home.request(runs, Limits(steps), "")
    if write is not None:
        request.write.CopyFrom(write)
    with expect_refusal(f"{what} in a loop" if write is not None else what, InvalidParameter, OutOfMemory):
        call_in_worker(lambda: list(home.loop(request)))


def keeps_sequences_within_the_memory(target: Target) -> None:
    """Check that a session whose memory is full gets no more sequences, and that those it has go on after releases."""
    with remembering(target, adding()) as (connection, [prepared]):
        limit = connection.session.welcome.limits.session_bytes
        if limit // _GIB > _MOST_BUFFERS:
            raise NotOffered(f"a session may have {limit} bytes, too many to try")
        buffers = _fill(connection)
        homes: list[Home] = []
        with expect_refusal(f"{_MOST_SEQUENCES} sequences in {_ROOM} bytes", OutOfMemory):
            for seed in range(_MOST_SEQUENCES):
                home = begin(prepared, seed)
                homes.append(home)
                _run(home, Kept(_FLOAT32, X), Kept(_FLOAT32, TOTAL))
        homes = [home for home in homes if home._operation > 1]
        totals = [prepared.run([question(seed), question(seed + 1)])[1] for seed in range(len(homes))]
        for seed, home in enumerate(homes):
            require_same(home.read([TOTAL])[TOTAL], totals[seed], "a state when the memory is full")
        for home in homes[1::2]:
            home.release()
        for seed, home in enumerate(homes[::2]):
            _go_on(prepared, home, totals[2 * seed], "other sequences were released in a full memory")
            home.release()
        for buffer_id in buffers:
            release_buffer(connection.session, buffer_id)
        home = begin(prepared)
        _go_on(prepared, home, question(1), "the memory was full")
        home.release()


def _fill(connection: Connection) -> list[int]:
    """Take the session's memory with buffers, all but about _ROOM bytes, and return their ids."""

    def allocate(size_bytes: int) -> int:
        request = device_pb2.AllocateBufferRequest(length=size_bytes)
        buffer_id: int = connection.call("NnrtDevice.AllocateBuffer", request).buffer.region.buffer_id
        return buffer_id

    try:
        room, buffers = allocate(_ROOM), list[int]()
    except OutOfMemory:
        return []
    size_bytes = _GIB
    while size_bytes >= _ROOM:
        try:
            buffers.append(allocate(size_bytes))
        except OutOfMemory:
            size_bytes //= 2
    release_buffer(connection.session, room)
    return buffers
