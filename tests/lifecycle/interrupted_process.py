"""Client whose runs are interrupted by signals. Run as a script, this module is that client, and prints its verdict."""

import faulthandler
import json
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import warm
from interrupts import Hesitation, InterruptAt, Interrupts, RandomInterrupts
from networks import identity_model
from observer import Observer
from tensor_runs import compiled

from nnrt_client import DataType, Device, Executor, NnrtError, OutOfMemory, Settings, Tensor, TensorDesc

# Time limit for a client, and for the end of a thread or run.
_CLIENT_S = 30.0
DEADLINE_S = 20.0
# Time limit for an interrupted run.
_RUN_S = 10.0
# Delay of threads that hesitate.
_HESITATION_S = 0.003
# gRPC's threads end shortly after their calls.
_THREAD_GRACE_S = 5.0
_IN_FLIGHT = 16
# Number of given-up outputs that are kept and checked later.
_GIVEN_UP = 20
_LONG_MS = 600_000


def verdict_of(address: str, what: str, **arguments: Any) -> dict[str, Any]:
    """Run a client process, and return the verdict that it prints."""
    tests = Path(__file__).parents[1]
    process = warm.run(
        [sys.executable, __file__, address, what, json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=2 * _CLIENT_S,
        env={**os.environ, "PYTHONPATH": f"{tests}:{Path(__file__).parent}"},
    )
    assert process.returncode == 0, f"it exited with {process.returncode}: {process.stdout}\n{process.stderr}"
    verdict: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return verdict


class Runs:
    """Ways to run the identity; each run has a unique input, and its output is checked."""

    def __init__(self, device: Device, executor: Executor, timeout_ms: int | None = None) -> None:
        self._device = device
        self._executor = executor
        self._timeout_ms = timeout_ms
        self._numbers = count(1)
        self.faults: list[str] = []
        # Runs begun by run_async, and the number of callbacks of each.
        self._begun: list[int] = []
        self._called_back: Counter[int] = Counter()
        executor.set_on_run_done(self._on_run_done)
        self._target: Tensor | None = None
        # Outputs that nothing may write to any more.
        self._given_up: deque[Tensor] = deque()

    def run_sync(self) -> None:
        number = next(self._numbers)
        self._check(number, self._executor.run_sync([_input(number)], timeout_ms=self._timeout_ms))

    def with_tensors(self) -> None:
        number, target = next(self._numbers), self._target
        assert target is not None
        self._executor.run_sync([_input(number)], [target], timeout_ms=self._timeout_ms)
        self._check(number, [target.numpy()])

    def submit(self) -> None:
        number = next(self._numbers)
        self._check(number, self._executor.submit([_input(number)], timeout_ms=self._timeout_ms).result())

    def run_async(self) -> None:
        number = next(self._numbers)
        self._executor.run_async([_input(number)], timeout_ms=self._timeout_ms or _LONG_MS, user_data=number)
        self._begun.append(number)

    def many_at_once(self) -> None:
        """Keep more runs in flight than the session has streams: a lost stream would be noticed."""
        numbers = [next(self._numbers) for _ in range(_IN_FLIGHT)]
        runs = [self._executor.submit([_input(number)]) for number in numbers]
        for number, run in zip(numbers, runs, strict=True):
            self._check(number, run.result(DEADLINE_S))

    def make_target(self) -> None:
        """Create a tensor for the outputs of later runs."""
        if self._target is None:
            self._target = Tensor(self._device, TensorDesc(DataType.FLOAT32, [4]))

    def give_target_up(self, is_ended: bool = True) -> None:
        """Give up the target of an interrupted run; nothing may write to it any more.

        `is_ended` is false if the end of the run was interrupted, too: then the tensor isn't checked.
        """
        target, self._target = self._target, None
        if target is not None and is_ended:
            target.numpy()[:] = -1
            self._given_up.append(target)
        elif target is not None:
            target.close()
        while len(self._given_up) > _GIVEN_UP:
            self._look_at_given_up()

    def close_targets(self) -> None:
        self.give_target_up()
        while self._given_up:
            self._look_at_given_up()

    def close(self) -> None:
        """Close the executor, and check that each asynchronous run was called back once."""
        self._executor.close()
        if missing := [number for number in self._begun if not self._called_back[number]]:
            self.faults.append(f"runs {missing} were not called back")
        if twice := [number for number, times in self._called_back.items() if times > 1]:
            self.faults.append(f"runs {twice} were called back more than once")

    def _look_at_given_up(self) -> None:
        with self._given_up.popleft() as target:
            if (target.numpy() != -1).any():
                self.faults.append(f"a run that was given up wrote {target.numpy()[0]}")

    def _on_run_done(self, number: int, outputs: Any, error: NnrtError | None) -> None:
        self._called_back[number] += 1
        if error is None:
            self._check(number, outputs)
        elif "closed" not in str(error):
            self.faults.append(f"run {number} was called back with {error!r}")

    def _check(self, number: int, outputs: Any) -> None:
        if not np.array_equal(outputs[0], _input(number)):
            self.faults.append(f"run {number} was answered with {outputs[0]}")


class Bystanders:
    """Threads that run the model all the time, next to the interrupted thread."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._ends = False
        self.faults: list[str] = []
        self._counts = [0, 0]
        self._threads = [threading.Thread(target=self._run, args=(at,)) for at in range(len(self._counts))]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each thread run the model once more, and end."""
        before = list(self._counts)
        while not self.faults and not all(now > then for now, then in zip(self._counts, before, strict=True)):
            self._executor.run_sync([_input(0)])
        self._ends = True
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def _run(self, at: int) -> None:
        try:
            while not self._ends:
                number = -1 - at - 10 * self._counts[at]
                (output,) = self._executor.run_sync([_input(number)])
                assert np.array_equal(output, _input(number)), f"run {number} was answered with {output}"
                self._counts[at] += 1
        except BaseException as error:
            self.faults.append(f"a thread beside it failed: {error!r}")


class Guard:
    """Thread that ends this process if it hangs, after printing all stacks and the latest interrupts."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="guard", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        if not self._is_over.wait(_CLIENT_S):
            print("it stands still; the latest interrupts:", *Interrupts.places, sep="\n", file=sys.stderr)
            faulthandler.dump_traceback(all_threads=True)
            os._exit(3)


def _input(number: int) -> Any:
    return np.full(4, number, np.float32)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _out_of_memory() -> None:
    raise MemoryError


def at_random(runs: Runs, way: str, action: str, wanted: int, apart_s: tuple[float, float]) -> int:
    """Interrupt runs `wanted` times at random moments, and return how often."""
    run: Callable[[], None] = getattr(runs, way)
    with RandomInterrupts(_action(runs, action), wanted, apart_s) as interrupts:
        while interrupts.count < wanted:
            runs.make_target()
            begun_at = time.monotonic()
            if times := interrupts.call(run):
                runs.give_target_up(is_ended=times == 1)
            if (seconds := time.monotonic() - begun_at) > _RUN_S:
                runs.faults.append(f"an interrupted run took {seconds:.1f} s")
            if way == "run_async":
                interrupts.call(runs.run_sync)  # Bounds the number of pending runs.
        return interrupts.count


def at_each_point(runs: Runs, way: str, action: str) -> int:
    """Interrupt a run at its first point, the next run at its second, and so on, until a run has no more points."""
    run: Callable[[], None] = getattr(runs, way)
    for point in count(1):
        interrupts = InterruptAt(_action(runs, action), point)
        runs.make_target()
        try:
            interrupts.call(run)
        except (KeyboardInterrupt, MemoryError, OutOfMemory):
            runs.give_target_up()
        runs.run_sync()
        if not interrupts.count:
            return point
    raise AssertionError


def _action(runs: Runs, name: str) -> Callable[[], object]:
    return {"interrupt": _interrupt, "out of memory": _out_of_memory, "run": runs.run_sync}[name]


def _verdict(
    address: str,
    what: str,
    share_memory: bool,
    timeout_ms: int | None = None,
    hesitates_in: Sequence[str] = (),
    **arguments: Any,
) -> Any:
    guard, settings = Guard(), Settings(share_memory=share_memory)
    hesitation = Hesitation(hesitates_in, _HESITATION_S) if hesitates_in else None
    with ExitStack() as closing:
        device, executor = compiled(closing, address, identity_model(elements=4), settings)
        runs = Runs(device, executor, timeout_ms)
        runs.many_at_once()
        runs.make_target()
        runs.with_tensors()  # The daemon now knows the descriptions of both kinds of runs.
        with Observer(address) as observer:  # The daemon would close an observer without heartbeats meanwhile.
            held_bytes = observer.state().held_bytes
        bystanders = Bystanders(executor) if what == "at_random" else None
        interrupt: Callable[..., int] = at_random if what == "at_random" else at_each_point
        interrupts = interrupt(runs, **arguments)
        for _ in range(3):
            runs.many_at_once()
            runs.run_sync()
        if bystanders is not None:
            bystanders.stop()
            runs.faults += bystanders.faults
        runs.close_targets()
        with Observer(address) as observer:
            observer.wait_for(lambda state: not state.running + state.queued and state.held_bytes <= held_bytes)
        runs.close()
    if hesitation is not None:
        runs.faults += [f"{name} was never called" for name in hesitates_in if not hesitation.counts[name]]
    guard.end()
    lasting = threading.main_thread().name, "nnrt-io"
    others = [thread for thread in threading.enumerate() if thread.name not in lasting]
    for thread in others:
        thread.join(_THREAD_GRACE_S)
    left = [thread.name for thread in others if thread.is_alive()]
    return {"interrupts": interrupts, "faults": runs.faults, "threads": left}


if __name__ == "__main__":
    print(json.dumps(_verdict(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))))
