"""Replacement of a daemon for the kit's cases: it prepares and runs graphs on a backend in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

from nnrt_client.conformance.case import Case
from nnrt_client.conformance.levels.answers import run_case
from nnrt_client.conformance.outcome import Outcome, outcome_from_error
from nnrt_client.conformance.target import Connection
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, PreparedModel, Support
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import NnrtError, UnavailableDevice
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import infer_graph
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array, TensorSpec


def outcome_of(case: Case, backend: Backend) -> Outcome:
    """Return the kit's verdict on a backend's answers to a case."""
    try:
        return run_case(case, cast(Connection, _Connection(backend)))
    except NnrtError as error:
        return outcome_from_error(error)


@contextmanager
def _report_faults() -> Iterator[None]:
    """Turn an unexpected exception into UnavailableDevice, like a daemon does."""
    try:
        yield
    except NnrtError:
        raise
    except Exception as error:
        raise UnavailableDevice(f"the device failed ({type(error).__name__})") from error


class _Connection:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.session = SimpleNamespace(info=backend.describe(), require_alive=lambda: None)

    def supported(self, graph: Graph) -> list[Support]:
        inferred = infer_graph(graph)
        answers = self._backend.supported(inferred.graph)[: len(graph.nodes)]
        problems = inferred.problems
        return [Support(problems[at].message) if at in problems else answer for at, answer in enumerate(answers)]

    def prepare(self, graph: Graph, config: ModelConfig) -> "_Prepared":
        inferred = infer_graph(graph)
        inferred.raise_first_problem()
        with _report_faults():
            return _Prepared(self._backend.prepare(inferred.graph, config, lambda fraction: None))

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> "_Prepared":
        with _report_faults():
            return _Prepared(self._backend.restore(parts, config))


class _Prepared(Closable):
    def __init__(self, model: PreparedModel) -> None:
        self.model = model

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.model.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.model.outputs

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the model on copies of the inputs, so that a defect that overwrites inputs affects no other case."""
        with _report_faults():
            return self.model.run([array.copy() for array in inputs], Cancellation())

    def export(self) -> Sequence[Part]:
        with _report_faults():
            return self.model.export()

    def close(self) -> None:
        self.model.close()
