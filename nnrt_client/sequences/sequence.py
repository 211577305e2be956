"""Sequence: runs of a model whose state stays on the device.

with load("decoder.onnx", device="127.0.0.1:50051") as session, session.sequence() as sequence:
    for token in tokens:
        outputs = sequence.run({"input_ids": token})
"""

import threading
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Sequence as Items
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from nnrt_client.model.model import Model, parts_of
from nnrt_client.run.arrays import convert_input
from nnrt_client.run.executor import Executor
from nnrt_client.run.names import named_descs
from nnrt_client.sequences.home import Keepings, Limits
from nnrt_client.sequences.log import LoggedRun, LoggedValues, frozen
from nnrt_client.sequences.loop import Loop
from nnrt_client.sequences.plan import LoopPlan, Numbers
from nnrt_client.sequences.residence import Residence
from nnrt_client.sequences.states import States, checked_states, found_states, initial_value
from nnrt_client.session.fork import LockOwner
from nnrt_client.tensors.device_buffer import Kept
from nnrt_client.tensors.run_tensor import RunTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import InvalidParameter, OperationForbidden
from nnrt_hdi.sequences import MAX_STEPS, Keeping
from nnrt_hdi.tensor import Array

# Bytes of inputs that the client keeps, of a sequence that another device may have to go on with.
LOG_BYTES = 16 << 20
# Name of the value that ends a loop.
STOP = "stop"


class Sequence(LockOwner, Closable):
    """Runs of a model, one after the other, whose state stays on the device. Made by `ModelSession.sequence`.

    The state consists of outputs that are inputs of the next run. Threads may share a sequence: their runs are done in
    some order, each as a whole. A sequence of a pool goes on on another device when its own dies: the client keeps what
    it has sent, up to `log_bytes` and beyond that a copy of the state, and makes the runs again, whose outputs nobody
    gets twice.
    """

    def __init__(
        self,
        executor: Executor,
        states: States | None = None,
        initial: Mapping[str, ArrayLike] | None = None,
        *,
        log_bytes: int = LOG_BYTES,
        on_behalf_of: str | None = None,
    ) -> None:
        """Begin a sequence of an executor's model.

        Args:
            executor: The executor, which must stay open.
            states: Inputs by the outputs that become them in the next run; a `State` also says how. None: those that
                the names of inputs and outputs tell.
            initial: Values of states before the first run, by the name of the input, or other values for loops. A state
                that is not given is zeros: 1 long in a first dimension that is open, 0 in other open dimensions.
            log_bytes: Bytes of inputs that the client keeps, in a pool.
            on_behalf_of: As for `ModelSession.run`.

        Raises:
            InvalidParameter: A state or initial value doesn't fit the model, or no states are given or found.
            Unsupported: The daemon has no sequences, or the model is cut into parts.
            UnavailableDevice: No device has the model.
        """
        self._inputs = named_descs("input", [executor.input_desc(at) for at in range(executor.input_count)])
        self._outputs = named_descs("output", [executor.output_desc(at) for at in range(executor.output_count)])
        self._executor = executor
        inputs, outputs = list(self._inputs.values()), list(self._outputs.values())
        if states is None:
            found = found_states(inputs, outputs)
            if not found:
                raise InvalidParameter(
                    f"no output of {list(self._outputs)} has the name of a state among the inputs {list(self._inputs)};"
                    " say which is which by `states`, from outputs to inputs"
                )
        else:
            found = checked_states(states, inputs, outputs)
        self.states = found
        numbers = {name: at for at, name in enumerate(self._inputs, 1)}
        self._numbers = Numbers({output: numbers[state.input] for output, state in found.items()} | numbers)
        self._keepings: dict[int, Keeping] = {}
        for at, name in enumerate(self._outputs):
            if (state := found.get(name)) is not None:
                self._keepings[at] = Keeping(
                    self._numbers.of(state.input), state.appends, state.axis or 0, state.window
                )
        # In the order of the states, for `read`.
        self._state_inputs = dict.fromkeys(state.input for state in found.values())
        self._residence = Residence(executor._dispatcher, log_bytes, on_behalf_of)
        self._is_open = True
        self._is_busy = False
        self._loop: Loop | None = None
        values = {name: initial_value(self._inputs[name]) for name in self._state_inputs}
        values |= {name: self._array(name, given) for name, given in (initial or {}).items()}
        super().__init__()
        self.write(values)

    def _make_locks(self) -> None:
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        states = ", ".join(f"{output} -> {state.input}" for output, state in self.states.items())
        return f"<Sequence with {states}>"

    # ---- operations

    def run(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        outputs: Collection[str] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Send the next run and wait for its outputs.

        Args:
            inputs: Inputs by name, without those that are states.
            outputs: Names of the outputs wanted; None: all that are no states.
            timeout_ms: Time limit of the run; None: that of the settings.

        Returns:
            The outputs by name, read-only.

        Raises:
            InvalidParameter: An input doesn't fit the model, or a state doesn't fit any more. The state has not
                changed.
            OutOfMemory: The session has no room for the state. It has not changed.
            OperationForbidden: The sequence is closed, or a run was cut short, so that nobody knows its state.
            NnrtError: Other errors of `Executor.run_sync`.
        """
        given, wanted = self._given(inputs), self._wanted(outputs)
        unwanted = tuple(at for at, name in enumerate(self._outputs) if name not in wanted)
        keepings = tuple(self._keepings.items())
        elements = [
            Kept(form.spec.numpy_dtype, self._numbers.of(name)) if name in self._state_inputs else given[name]
            for name, form in zip(self._inputs, self._executor._dispatcher.signature.input_forms, strict=True)
        ]
        with self._operation() as residence:
            served = residence.on_behalf_of
            result = residence.do(lambda home: home.run(list(elements), keepings, unwanted, timeout_ms, served))
            if residence.log is not None:
                values = {self._numbers.of(name): frozen(array) for name, array in given.items()}
                residence.log.add(LoggedRun(self._reads, values, keepings))
        return {name: array for name, array in zip(self._outputs, result, strict=True) if name in wanted}

    def queue(
        self, runs: Items[Mapping[str, "ArrayLike | Earlier"]], *, outputs: Collection[str] | None = None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Send runs at once, which the device makes one after the other, and iterate over their outputs as they come.

        Args:
            runs: Inputs of each run, as for `run`. `Earlier(name)` is an output of a run before in the queue, or a
                value of the sequence.
            outputs: As for `run`.

        Returns:
            Iterator of the outputs of each run by name.

        Raises:
            NnrtError: As `run`. Its place names the run. Then the state is what it was before the queue.
        """
        wanted = self._wanted(outputs)
        earlier = {one.name for run in runs for one in run.values() if isinstance(one, Earlier)}
        keepings = self._keepings_of({*wanted, *earlier})
        known = {*self._known, *earlier & set(self._outputs)}
        looped: list[tuple[Items[int], Mapping[int, Array]]] = []
        for run in runs:
            named = {name: one.name for name, one in run.items() if isinstance(one, Earlier)}
            given = self._given({name: one for name, one in run.items() if name not in named}, named)
            for name in named.values():
                _require_known(name, known)
            reads = [self._numbers.of(named.get(name, name)) for name in self._inputs]
            looped.append((reads, {self._numbers.of(name): frozen(array) for name, array in given.items()}))
        if not looped:
            return iter(())
        delivered = {self._value_name(name): name for name in self._outputs if name in wanted}
        plan = LoopPlan(
            self._reads,
            keepings,
            None,
            self._numbers,
            [self._numbers.of(name) for name in delivered],
            queue=looped,
        )
        return self._begin_loop(plan, {}, Limits(), delivered)

    def loop(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        deliver: Collection[str],
        max_steps: int,
        glue: Model | None = None,
        max_bytes: int = 0,
        max_ms: int = 0,
    ) -> Loop:
        """Let the device make runs of the model one after the other, and deliver values as they come.

        In each step the device runs the model and then the glue. Names connect them: the glue reads outputs of the
        model, and values of the sequence; its outputs become values, and those with the name of an input of the model
        are that input in the next step. If all elements of the BOOL value `stop` are true, the loop ends.

        Args:
            inputs: Inputs of the first run that are no states, and other values that the glue reads. Those that only
                the glue reads and makes, such as `step` and `stop`, begin with zeros.
            deliver: Names of the outputs or values to deliver after each step.
            max_steps: Most steps, 1 to 2^20.
            glue: A finished model, such as `greedy` and `sample` make.
            max_bytes: Most bytes to deliver, after which the loop ends; 0: 1 GiB.
            max_ms: Milliseconds after which the loop ends; 0: one hour.

        Returns:
            Iterator of the values of each step by name. Its `end` says why the loop has ended.

        Raises:
            InvalidParameter: A name is not known, or a limit is out of range.
            NnrtError: Other errors of `run`. The iterator raises those of the device, whose place names the step; the
                steps before it have been made.
        """
        if isinstance(max_steps, bool) or not isinstance(max_steps, int) or not 1 <= max_steps <= MAX_STEPS:
            raise InvalidParameter(f"max_steps is {max_steps!r}; use 1..{MAX_STEPS}")
        values = {name: self._array(name, given) for name, given in inputs.items()}
        graph = parts_of(glue).graph if glue is not None else None
        read = {spec.name for spec in graph.input_specs} if graph is not None else set()
        made = {spec.name for spec in graph.output_specs} if graph is not None else set()
        # What the glue counts or remembers, such as `step` and `stop`, begins with zeros.
        for spec in graph.input_specs if graph is not None else ():
            if spec.name in made and spec.name not in {*self._known, *values, *self._inputs, *self._outputs}:
                values[spec.name] = initial_value(TensorDesc._from_spec(spec))
        has_stop = STOP in made or (glue is None and STOP in self._outputs)
        wanted = {*deliver, *read, *([STOP] if has_stop else ())} & set(self._outputs)
        known = self._known | set(values)
        for name in self._inputs:
            _require_known(name, known)
        known |= {self._value_name(name) for name in wanted}
        for name in read:
            _require_known(self._value_name(name) if name in self._outputs else name, known)
        for name in deliver:
            _require_known(self._value_name(name) if name in self._outputs else name, known | made)
        delivered = {self._value_name(name): name for name in deliver}
        plan = LoopPlan(
            self._reads,
            self._keepings_of(wanted),
            glue,
            self._numbers,
            [self._numbers.of(name) for name in delivered],
            self._numbers.of(STOP) if has_stop else 0,
        )
        numbered = {self._numbers.of(name): frozen(array) for name, array in values.items()}
        return self._begin_loop(plan, numbered, Limits(max_steps, max_bytes, max_ms), delivered)

    def read(self, *names: str) -> dict[str, NDArray[Any]]:
        """Return copies of states, or of other values, by name; without names all states, by the inputs' names."""
        wanted = names or tuple(self._state_inputs)
        for name in wanted:
            _require_known(name, self._known)
        numbers = [self._numbers.of(name) for name in wanted]
        with self._operation() as residence:
            arrays = residence.do(lambda home: home.read(numbers))
        return {name: arrays[number] for name, number in zip(wanted, numbers, strict=True)}

    def write(self, values: Mapping[str, ArrayLike]) -> None:
        """Write states by the names of their inputs, or other values for loops."""
        arrays = {name: self._array(name, given) for name, given in values.items()}
        numbered = {self._numbers.of(name): frozen(array) for name, array in arrays.items()}
        with self._operation() as residence:
            residence.do(lambda home: home.write(numbered))
            residence.known |= set(numbered)
            if residence.log is not None:
                residence.log.add(LoggedValues(numbered))

    def fork(self) -> Self:
        """Return a sequence that begins with the values of this one. They take no memory until the two part."""
        forked = copy(self)
        with self._operation() as residence:
            forked._residence, forked._numbers = residence.fork(), self._numbers.copy()
        forked._loop = None
        LockOwner.__init__(forked)
        return forked

    def close(self) -> None:
        """End a loop under way, and free the values on the device. Idempotent."""
        with self._lock:
            self._is_open = False
            try:
                self._end_loop()
            finally:
                self._residence.close()

    # ---- names

    @property
    def _known(self) -> set[str]:
        """Names of the values that have been written or made."""
        return self._numbers.names(self._residence.known)

    @property
    def _reads(self) -> tuple[int, ...]:
        return tuple([self._numbers.of(name) for name in self._inputs])

    def _value_name(self, output: str) -> str:
        """Return the name of the value that an output becomes: that of an input if it is a state."""
        state = self.states.get(output)
        return output if state is None else state.input

    def _keepings_of(self, outputs: Collection[str]) -> Keepings:
        """Return how outputs become values: the states, and these outputs."""
        keepings = dict(self._keepings)
        for at, name in enumerate(self._outputs):
            if name in outputs and at not in keepings:
                keepings[at] = Keeping(self._numbers.of(name))
        return tuple(keepings.items())

    def _wanted(self, outputs: Collection[str] | None) -> Collection[str]:
        if outputs is None:
            return [name for name in self._outputs if name not in self.states]
        for name in outputs:
            if isinstance(outputs, str) or name not in self._outputs:
                raise InvalidParameter(f"there is no output {name!r}; the model's are {list(self._outputs)}")
        return outputs

    def _given(self, inputs: Mapping[str, Any], named: Collection[str] = ()) -> dict[str, Array]:
        """Return the inputs of a run that are neither states nor named, as arrays that fit the model."""
        expected = [name for name in self._inputs if name not in self._state_inputs and name not in named]
        if set(inputs) != set(expected):
            raise InvalidParameter(
                f"inputs are named {sorted(inputs)}; the model's are {sorted(expected)}, besides the states"
                f" {sorted(self._state_inputs)}"
            )
        return {name: self._array(name, inputs[name]) for name in expected}

    def _array(self, name: str, given: Any) -> Array:
        """Return a value as an array; if it has the name of an input, one that fits the input."""
        if name not in self._inputs:
            return np.asarray(given)
        given = convert_input(self._inputs[name], given)
        if isinstance(given, RunTensor):
            raise InvalidParameter(
                "it is a Tensor; give an array: a sequence keeps its state itself", place=f"{name!r}"
            )
        signature = self._executor._dispatcher.signature
        array: Any = signature.fitting(list(self._inputs).index(name), given)
        return array  # type: ignore[no-any-return]

    @contextmanager
    def _operation(self) -> Iterator[Residence]:
        """Make the block one operation of the sequence, after those of other threads; end a loop under way first."""
        with self._lock:
            if self._is_busy:
                raise OperationForbidden("the sequence is in the middle of an operation in this thread")
            if not self._is_open:
                raise OperationForbidden("the sequence is closed; make another one")
            self._is_busy = True
            try:
                self._end_loop()
                yield self._residence
                self._residence.shorten_log()
            finally:
                self._is_busy = False

    def _begin_loop(
        self, plan: LoopPlan, values: Mapping[int, Array], limits: Limits, delivered: Mapping[str, str]
    ) -> Loop:
        names = {self._numbers.of(name): output for name, output in delivered.items()}
        with self._operation() as residence:
            self._loop = Loop._begun(residence, plan, values, limits, names)
        return self._loop

    def _end_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()


class Earlier:
    """Output of an earlier run of the same queue, or value of the sequence, as an input of a later run."""

    def __init__(self, name: str) -> None:
        """Name it."""
        self.name = name


def _require_known(name: str, known: Collection[str]) -> None:
    if name not in known:
        raise InvalidParameter(f"no value {name!r} has been given or made; give it, or read one of {sorted(known)}")
