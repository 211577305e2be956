"""Checks of the level `sequences` with loops that the device makes by itself, and with their ends."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from nnrt_client.conformance.levels.check import expect_refusal, require
from nnrt_client.conformance.levels.remembering import (
    ADDED,
    COLUMNS,
    ROWS,
    Signature,
    X,
    Y,
    adding,
    answering,
    begin,
    question,
    remembering,
    require_same,
    require_taken,
    run_of_adding,
    run_of_answering,
    speaking,
    unharmed,
)
from nnrt_client.conformance.target import Target
from nnrt_client.sequences.glue import greedy
from nnrt_client.sequences.home import Home, Limits
from nnrt_client.sequences.loop import Loop
from nnrt_client.sequences.sequence import Sequence
from nnrt_client.session.errands import call_in_worker
from nnrt_hdi import wire
from nnrt_hdi.errors import UnavailableDevice
from nnrt_hdi.sequences import MAX_STEPS
from nnrt_hdi.tensor import Array
from nnrt_hdi.v2 import sequence_pb2

_STEPS = 7
_WORDS = 11
_ENDLESS = np.full((ROWS, COLUMNS), np.inf, np.float32)


def makes_steps_by_itself(target: Target) -> None:
    """Check that the steps of a loop are the runs that a client would make, and that each limit ends it."""
    grows = answering(0.25)
    with remembering(target, adding(), grows) as (_, [prepared, glue]):
        x, total, ys, totals = question(0), question(1), [], []
        for _ in range(_STEPS):
            y, total = prepared.run([x, total])
            x, _ = glue.run([y, _ENDLESS])
            ys.append(y)
            totals.append(total)
        between = np.full_like(_ENDLESS, (ys[3].min() + ys[4].min()) / 2)
        all_bytes = ys[0].nbytes
        for what, reason, steps, most, limits in (
            ("max_steps", "steps", _STEPS, _ENDLESS, {"max_steps": _STEPS}),
            ("a stop", "stopped", 5, between, {"max_steps": MAX_STEPS}),
            ("max_bytes", "bytes", 3, _ENDLESS, {"max_steps": MAX_STEPS, "max_bytes": 3 * all_bytes - 1}),
        ):
            with Sequence(prepared.executor, ADDED, {"total": question(1)}) as sequence:
                loop = sequence.loop({"x": question(0), "most": most}, glue=grows, deliver=["y"], **limits)
                given = [values["y"] for values in loop]
                _require_end(loop, reason, what)
                require(len(given) == steps, f"a loop that {what} ends after {steps} steps delivers {len(given)}")
                for step, y in enumerate(given):
                    require_same(y, ys[step], f"output 'y' of step {step + 1} of a loop")
                require_same(sequence.read()["total"], totals[steps - 1], f"the state after a loop that {what} ends")
                y, _ = prepared.run([x, totals[steps - 1]])
                require_same(sequence.run({"x": x})["y"], y, f"output 'y' of the run after a loop that {what} ends")
        with Sequence(prepared.executor, ADDED) as sequence:
            loop = sequence.loop({"x": question(0)}, deliver=[], max_steps=MAX_STEPS, max_ms=20)
            require(not any(loop), "a loop that is to deliver nothing delivers values")
            _require_end(loop, "time", "max_ms")


def _require_end(loop: Loop, reason: str, what: str) -> None:
    assert loop.end is not None
    require(loop.end.reason == reason, f"a loop that {what} is to end says {loop.end.reason!r}; {reason!r} is right")


def chooses_tokens(target: Target) -> None:
    """Check that a loop with glue for the most likely token makes the tokens that a client would choose."""
    model = speaking(_WORDS)
    with remembering(target, model) as (connection, [prepared]):
        token: Array = np.array([1], np.int32)
        heard: Array = np.zeros((1, _WORDS), np.float32)
        tokens: list[int] = []
        for _ in range(_STEPS):
            logits, heard = prepared.run([token, heard])
            token = np.argmax(logits, 1).astype(np.int32)
            tokens.append(int(token[0]))
        # A token that comes late, so that there are steps before it.
        stop = max(set(tokens), key=tokens.index)
        glue = greedy(Signature.of(prepared), stop_token=stop)
        require_taken(connection, glue)
        with Sequence(prepared.executor, {"new_heard": "heard"}) as sequence:
            loop = sequence.loop({"input_ids": [1]}, glue=glue, deliver=["input_ids"], max_steps=_STEPS + 1)
            given = [int(values["input_ids"][0]) for values in loop]
            wanted = tokens[: tokens.index(stop) + 1]
            require(given == wanted, f"a loop chooses the tokens {given}; {wanted} are right")
            _require_end(loop, "stopped", f"the token {stop}")


def ends_loops_that_are_asked_to(target: Target) -> None:
    """Check that a loop ends after a step when its client says so, and that the state is the one of that step."""
    glue = answering(-1)
    with (
        remembering(target, adding(), glue) as (_, [prepared, _]),
        unharmed(prepared, "a loop that was stopped"),
        Sequence(prepared.executor, ADDED) as sequence,
    ):
        given = {"x": question(0), "most": _ENDLESS}
        loop = sequence.loop(given, glue=glue, deliver=["total"], max_steps=MAX_STEPS)
        latest = [next(loop), *loop.rest()][-1]["total"]
        _require_end(loop, "asked", "Stop")
        require_same(sequence.read()["total"], latest, "the state after a loop that was stopped")
        y, _ = prepared.run([question(1), latest])
        require_same(sequence.run({"x": question(1)})["y"], y, "output 'y' of the run after a loop that was stopped")


def ends_loops_of_clients_that_go(target: Target) -> None:
    """Check that a loop ends with its call, its sequence and its session, and that others go on."""
    models = adding(), answering(-1)
    with remembering(target, *models) as (connection, [prepared, glue]):
        runs = run_of_adding(prepared), run_of_answering(glue, delivered=(X,))

        def looping(home: Home) -> Iterator[sequence_pb2.LoopReply]:
            return home.loop(home.request(runs, Limits(MAX_STEPS), ""))

        def break_off(home: Home) -> None:
            with closing(looping(home)) as replies:  # type: ignore[type-var]  # A generator.
                next(replies)

        with unharmed(prepared, "a loop whose call was cancelled"):
            home = begin(prepared)
            call_in_worker(break_off, home)
            values = home.read([X, Y])  # Waits for the end of the loop.
            x, _ = glue.run([values[Y], _ENDLESS])
            require_same(values[X], x, "the value that the last step of a cancelled loop made")
            home.release()

        def release_under_way(home: Home) -> None:
            request = sequence_pb2.ReleaseSequenceRequest(sequence_id=home.id)
            end = sequence_pb2.LoopEnd()
            for at, reply in enumerate(looping(home)):
                if not at:
                    connection.call("Sequences.Release", request)
                end = reply.end
            if end.HasField("error"):
                raise wire.error_from_detail(end.error)

        with unharmed(prepared, "a sequence that was released in a loop"):
            home = begin(prepared)
            with expect_refusal("the rest of a loop whose sequence is released", UnavailableDevice):
                call_in_worker(release_under_way, home)
            with expect_refusal("a value of a sequence that is released", UnavailableDevice):
                home.read([X])

        with (
            unharmed(prepared, "a session that ended in a loop"),
            remembering(target, *models) as (leaving, [other, _]),
        ):
            sequence = Sequence(other.executor, ADDED)
            given = {"x": question(0), "most": _ENDLESS}
            next(sequence.loop(given, glue=models[1], deliver=["total"], max_steps=MAX_STEPS))
            leaving.close()
