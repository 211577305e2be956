"""Level `sequences`: states stay on the device between runs, and are what they would be without a sequence."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.levels.check import Check, NotOffered, make_checks, require
from nnrt_client.conformance.levels.remembering import (
    ADDED,
    COLUMNS,
    ROWS,
    adding,
    appending,
    growing,
    question,
    remembering,
    require_same,
)
from nnrt_client.conformance.levels.sequence_loops import (
    chooses_tokens,
    ends_loops_of_clients_that_go,
    ends_loops_that_are_asked_to,
    makes_steps_by_itself,
)
from nnrt_client.conformance.levels.sequence_refusals import (
    keeps_sequences_within_the_memory,
    refuses_misplaced_operations,
    refuses_unknown_sequences,
    refuses_wrong_loops,
    refuses_wrong_states,
    refuses_wrong_values,
)
from nnrt_client.conformance.target import Prepared, Target
from nnrt_client.sequences.sequence import Earlier, Sequence
from nnrt_client.sequences.states import State
from nnrt_hdi.tensor import UNKNOWN_DIM, Array

_TURNS = 6
_THREADS, _RUNS = 2, 20
# A state of so many rows, 256 KiB, comes to a client on the same host in shared memory.
_MANY_ROWS = 1024
_ZEROS: Array = np.zeros((ROWS, COLUMNS), np.float32)


def replaces_states(target: Target) -> None:
    """Check that an output replaces the state, whether the client sees it or not, and that values can be written."""
    with remembering(target, adding()) as (_, [prepared]), Sequence(prepared.executor, ADDED) as sequence:
        total = _ZEROS
        for turn in range(_TURNS):
            x, names = question(turn), [("y",), ("new_total",), (), ("y", "new_total")][turn % 4]
            y, total = prepared.run([x, total])
            wanted = {"y": y, "new_total": total}
            for name, output in sequence.run({"x": x}, outputs=names).items():
                require_same(output, wanted[name], f"output {name!r} of run {turn + 1} of a sequence")
            require_same(sequence.read()["total"], total, f"the state after run {turn + 1} of a sequence")
            if turn % 3 == 1:
                total = question(turn + 100)
                sequence.write({"total": total})


def keeps_large_states_apart(target: Target) -> None:
    """Check that large states which the client also gets don't lie where it gets those of another sequence later."""
    with (
        remembering(target, adding(_MANY_ROWS)) as (_, [prepared]),
        Sequence(prepared.executor, ADDED) as first,
        Sequence(prepared.executor, ADDED) as second,
    ):
        totals = [np.zeros((_MANY_ROWS, COLUMNS), np.float32)] * 2
        for turn in range(_TURNS):
            for at, each in enumerate((first, second)):
                x = question(2 * turn + at, _MANY_ROWS)
                totals[at] = prepared.run([x, totals[at]])[1].copy()
                # Nobody holds the output, so the next one may lie in its place.
                require_same(each.run({"x": x}, outputs=["new_total"])["new_total"], totals[at], "a large state")
        for at, each in enumerate((first, second)):
            require_same(each.read()["total"], totals[at], "a large state after runs of another sequence")


def lets_states_grow(target: Target) -> None:
    """Check that a state may have another shape after each run."""
    if not target.info.capabilities.dynamic_input:
        raise NotOffered("the device needs every dimension")
    past = question(0, 1)
    with (
        remembering(target, growing()) as (_, [prepared]),
        Sequence(prepared.executor, {"present": "past"}, {"past": past}) as sequence,
    ):
        for turn in range(1, _TURNS):
            x = question(turn, 1 + turn % 3)
            (past,) = prepared.run([x, past])
            sequence.run({"x": x})
            require_same(sequence.read()["past"], past, f"a state that grows, after run {turn} of a sequence,")


def appends_to_states(target: Target) -> None:
    """Check that outputs are appended to a state, of which the whole or the last rows stay."""
    with remembering(target, appending()) as (_, [prepared]):
        _append(prepared, State("past", axis=0, appends=True, window=ROWS), _ZEROS)
    if not target.info.capabilities.dynamic_input:
        return
    with remembering(target, appending(UNKNOWN_DIM)) as (_, [prepared]):
        _append(prepared, State("past", axis=0, appends=True), question(0, 1))
        _append(prepared, State("past", axis=0, appends=True, window=3), question(0, 2))


def _append(prepared: Prepared, state: State, past: Array) -> None:
    how = f"with a window of {state.window}" if state.window else "without a window"
    with Sequence(prepared.executor, {"entry": state}, {"past": past}) as sequence:
        for turn in range(_TURNS):
            x = question(turn, 1)
            y, entry = prepared.run([x, past])
            require_same(sequence.run({"x": x})["y"], y, f"output 'y' of run {turn + 1} of a state {how}")
            past = np.concatenate([past, entry])[-state.window :]
            require_same(sequence.read()["past"], past, f"a state {how} after run {turn + 1}")


def parts_forks(target: Target) -> None:
    """Check that a fork begins with the values of its sequence, and that from then on neither changes the other."""
    with remembering(target, adding()) as (_, [prepared]), Sequence(prepared.executor, ADDED) as first:
        x = question(0)
        _, total = prepared.run([x, _ZEROS])
        first.run({"x": x})
        with first.fork() as second, second.fork() as third:
            second.write({"total": question(1)})
            totals = [total, question(1), total]
            for turn in range(2, _TURNS):
                for at, each in enumerate((first, second, third)):
                    x = question(turn * 3 + at)
                    y, totals[at] = prepared.run([x, totals[at]])
                    require_same(each.run({"x": x})["y"], y, f"output 'y' of sequence {at + 1} of three forks")
            first.close()
            for at, each in ((1, second), (2, third)):
                require_same(each.read()["total"], totals[at], f"the state of fork {at} of a sequence that has ended")
                y, _ = prepared.run([x, totals[at]])
                require_same(each.run({"x": x})["y"], y, f"output 'y' of fork {at} of a sequence that has ended")


def queues_dependent_runs(target: Target) -> None:
    """Check that runs that are sent at once are made in order, and take outputs of runs before them as inputs."""
    with remembering(target, adding()) as (_, [prepared]), Sequence(prepared.executor, ADDED) as sequence:
        earlier: list[Earlier | Array] = [question(0), Earlier("y"), question(1), Earlier("new_total"), Earlier("y")]
        y, total = _ZEROS, _ZEROS
        for turn, outputs in enumerate(sequence.queue([{"x": x} for x in earlier], outputs=["y"])):
            x = earlier[turn]
            given = x if not isinstance(x, Earlier) else y if x.name == "y" else total
            y, total = prepared.run([given, total])
            require_same(outputs["y"], y, f"output 'y' of run {turn + 1} of a queue")
        require(turn + 1 == len(earlier), f"a queue of {len(earlier)} runs gives {turn + 1} outputs")
        require_same(sequence.read()["total"], total, "the state after a queue")


def takes_turns_of_threads(target: Target) -> None:
    """Check that threads may share a sequence: each run is made as a whole, in some order."""
    with remembering(target, adding()) as (_, [prepared]), Sequence(prepared.executor, ADDED) as sequence:
        one = np.ones((ROWS, COLUMNS), np.float32)
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="nnrt-conformance") as threads:
            given = list(threads.map(lambda _: sequence.run({"x": one})["y"], range(_RUNS)))
        seen = sorted(float(y[0, 0]) for y in given)
        are_whole = all((y == y[0, 0]).all() for y in given)
        require(are_whole, "a run of a sequence that threads share sees a state that another run is changing")
        wanted = [2.0 * count for count in range(1, _RUNS + 1)]
        require(seen == wanted, f"{_RUNS} runs of threads that count together give {seen}; {wanted} is right")


def keeps_sequences_of_sessions_apart(target: Target) -> None:
    """Check that sequences of two sessions don't meet, whatever their ids are."""
    with (
        remembering(target, adding()) as (_, [one]),
        remembering(target, adding()) as (_, [other]),
        Sequence(one.executor, ADDED) as first,
    ):
        with Sequence(other.executor, ADDED, {"total": question(1)}) as second:
            first.run({"x": question(2)})
            second.run({"x": question(3)})
        _, total = one.run([question(2), _ZEROS])
        require_same(first.read()["total"], total, "the state beside a sequence of another session")


def checks() -> list[Check]:
    """Return the checks of the level."""
    return make_checks(
        Level.SEQUENCES,
        replaces_states,
        keeps_large_states_apart,
        lets_states_grow,
        appends_to_states,
        parts_forks,
        queues_dependent_runs,
        takes_turns_of_threads,
        keeps_sequences_of_sessions_apart,
        makes_steps_by_itself,
        chooses_tokens,
        ends_loops_that_are_asked_to,
        ends_loops_of_clients_that_go,
        refuses_unknown_sequences,
        refuses_misplaced_operations,
        refuses_wrong_values,
        refuses_wrong_states,
        refuses_wrong_loops,
        keeps_sequences_within_the_memory,
    )
