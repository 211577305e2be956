"""Run of a model, from its request to its reply."""

from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter_ns

from nnrt_device_service.runs.outputs import require_outputs
from nnrt_device_service.runs.run_values import RunValues
from nnrt_device_service.runs.tensors import OutputRegions, RegionTensors, find_tensors, frozen_copy, on_host
from nnrt_device_service.sessions.descriptions import NOWHERE, Description
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.payers import Payer
from nnrt_device_service.sessions.run_registry import KnownRun
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import NnrtError, UnavailableDevice
from nnrt_hdi.operator_times import OperatorTime
from nnrt_hdi.tensor import Array, TensorSpec


class Run(KnownRun):
    """Run of a model: its inputs, the daemon's resources that it uses, and its outputs or error.

    `frames` and `requests` make runs from what clients send, `Executing` computes them, `Replies` makes their replies.
    """

    __slots__ = (
        "asked_ns",
        "began_ns",
        "computed_ns",
        "copied_in_ns",
        "description",
        "done_ns",
        "error",
        "has_model",
        "has_slot",
        "inputs",
        "is_as_expected",
        "is_inside",
        "is_unknown",
        "is_written",
        "known",
        "model",
        "operation",
        "operators",
        "output_regions",
        "outputs",
        "payer",
        "received_at_ns",
        "region_tensors",
        "regions",
        "regions_key",
        "reserved_bytes",
        "resources",
        "sequence_id",
        "session",
        "values",
    )

    def __init__(self, session: Session, run_id: int, cancellation: Cancellation, received_at_ns: int = 0) -> None:
        """Make a run whose request was complete at `received_at_ns` (time.perf_counter_ns); 0 means now."""
        self.session = session
        # The session, or the identity on whose behalf the run is.
        self.payer: Payer = session
        self.id = run_id
        self.cancellation = cancellation
        self.received_at_ns = received_at_ns or perf_counter_ns()
        # Attributes of `KnownRun`, which the run registry uses.
        self.reply = self.awaiter = self.held_bytes = None
        self.chunked = ()
        self.was_too_long = False
        self.description: Description | None = None
        self.model: LoadedModel | None = None
        # True if the daemon has no description of the number that the client sent.
        self.is_unknown = False
        # In the model's order. `take_inputs` puts in those that lie in regions, `RunStream` those that come in chunks.
        self.inputs: list[Array] = []
        # buffer_id, offset and size in bytes of each region: three numbers each, those of inputs first.
        self.regions: Sequence[int] = ()
        # Key of the region tensors that are kept for later runs; empty if none are kept.
        self.regions_key = b""
        self.region_tensors: RegionTensors | None = None
        self.output_regions: OutputRegions | None = None
        self.resources: ExitStack | None = None
        # Sequence and number of the operation; 0 for a run of no sequence.
        self.sequence_id = self.operation = 0
        # Values that it reads and makes, from when the sequence's turn has come.
        self.values: RunValues | None = None
        # Whether the run must still leave the drain gate and release its model and slot, and its reserved bytes.
        self.is_inside = self.has_model = self.has_slot = False
        self.reserved_bytes = 0
        # When it began to wait for the device, and when it got its slot; 0 before that.
        self.asked_ns = self.began_ns = 0
        self.copied_in_ns = self.computed_ns = self.done_ns = 0
        # Specs of the outputs that were known before the outputs were computed.
        self.known: Sequence[TensorSpec] = ()
        self.outputs: Sequence[Array] = ()
        # Whether the outputs are those that the description expects, and whether those for regions have been written.
        self.is_as_expected = self.is_written = False
        self.operators: Sequence[OperatorTime] = ()
        self.error: BaseException | None = None

    @property
    def has_ended(self) -> bool:
        """True if the run has outputs or an error."""
        return self.error is not None or self.done_ns > 0

    @property
    def served_fields(self) -> dict[str, str]:
        """Fields of log entries that name the identity on whose behalf the run is."""
        return {} if self.payer is self.session else {"on_behalf_of": str(self.payer.identity)}

    @property
    def rows(self) -> int:
        """Number of rows of a run that may join a batch."""
        return len(self.inputs[0])

    def take_values(self) -> None:
        """Wait until the operation's turn has come in its sequence, and take the inputs that are values.

        Raises UnknownHandle if there is no such sequence, what `Sequence.begin` raises, and InvalidParameter if a value
        doesn't fit the model.
        """
        assert self.description is not None
        if self.values is None:
            sequence = self.session.sequences.find(self.sequence_id)
            sequence.begin(self.operation, self.cancellation)
            self.values = RunValues(self.session.sequences, sequence)
        self.values.read(self.description, self.inputs)

    @property
    def usual_ns(self) -> int | None:
        """Nanoseconds that runs of the model usually take on the device, or None if that is not known."""
        return self.model.usual_ns if self.model is not None else None

    def take_inputs(self) -> None:
        """Find the tensors that lie in regions, reserve their memory, and copy inputs that the client could change.

        Raises InvalidParameter or UnknownHandle for a region that doesn't exist or doesn't fit, OutOfMemory, and
        UnavailableDevice if the device fails.
        """
        description = self.description
        assert description is not None
        self.region_tensors = tensors = find_tensors(self.session, description, self.regions, self.regions_key)
        self.output_regions = tensors.targets
        for index, array in enumerate(tensors.inputs):
            if array is not None:
                self.inputs[index] = array
        if tensors.needs_reserve:
            with ExitStack() as resources:
                tensors.reserve(self.session, resources)
                self.resources = resources.pop_all()
        for index in tensors.copied:
            self.inputs[index] = frozen_copy(self.inputs[index])

    def take_outputs(self, device_name: str) -> None:
        """Check the outputs of the backend, and copy those for regions there.

        The run fails if the outputs don't fit the model, if the device fails, or if the run was cancelled.
        """
        assert self.model is not None
        targets, tensors, description = self.output_regions, self.region_tensors, self.description
        arrays = targets.arrays if targets is not None else ()
        if self.values is not None:
            arrays = self.values.arrays or arrays
        try:
            require_outputs(device_name, self.model.outputs, self.outputs, self.known, arrays)
            if targets is not None:
                self.cancellation.check()  # After a cancellation the client may use the memory for other runs.
                self.is_written = targets.write(self.outputs)
            if tensors is not None:
                self.outputs = tensors.make_sendable(self.outputs, self.is_written)
        except Exception as error:
            self.is_as_expected, self.outputs, self.error = False, (), error
        else:
            if description is not None:
                self.is_as_expected = description.is_match(self.outputs, is_written=self.is_written)

    def keep_values(self) -> None:
        """Make values of the outputs that become some, and end the operation in its sequence.

        The run fails if there is no room for them, or if the sequence has ended.
        """
        values, description = self.values, self.description
        assert values is not None and description is not None
        try:
            if self.error is None:
                values.keep(description, self.outputs)
                self.outputs = [
                    array if description.outputs[index].place == NOWHERE else on_host(array)
                    for index, array in enumerate(self.outputs)
                ]
        except Exception as error:
            self.is_as_expected, self.outputs, self.error = False, (), error
        finally:
            self.values = None
            values.end()
            if self.sequence_id:
                values.sequence.end(self.error)

    def release_inputs(self) -> None:
        """Release the inputs, and the resources that the inputs and the outputs in regions use."""
        self.inputs = []
        resources, self.resources, self.region_tensors = self.resources, None, None
        if resources is not None:
            resources.close()

    def fail(self, error: BaseException) -> None:
        """Note the error of the run; an unexpected one becomes UnavailableDevice if the run was on the device."""
        self.outputs = ()
        self.error = _device_error(error) if self.began_ns else error
        if self.error is not error and self.model is not None:
            self.model.shared.is_faulty = True

    def times(self) -> tuple[int, int, int, int, int, int]:
        """Return the times of a successful run in nanoseconds, in the order in which the head of a reply has them."""
        now, received_at_ns, done_ns = perf_counter_ns(), self.received_at_ns, self.done_ns
        queued_ns = max(self.began_ns - self.asked_ns, 0)
        return received_at_ns, queued_ns, self.copied_in_ns, self.computed_ns, now - done_ns, now - received_at_ns


def _device_error(error: BaseException) -> BaseException:
    """Return the error that a client gets for an exception of a backend."""
    if isinstance(error, NnrtError | MemoryError):
        return error
    failed = UnavailableDevice(
        f"the device failed to run the model ({type(error).__name__}); the daemon's log has the details"
    )
    failed.__cause__ = error
    return failed
