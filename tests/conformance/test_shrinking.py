"""A model that goes wrong shrinks to the nodes that go wrong together."""

from pathlib import Path
from typing import Any

import numpy as np
from conftest import StartDaemon

from nnrt_client.conformance.answers import Answer, inputs_digest
from nnrt_client.conformance.case import Case, Level
from nnrt_client.conformance.kit import Kit
from nnrt_client.conformance.levels.answers import Answers
from nnrt_client.conformance.outcome import Verdict
from nnrt_client.conformance.report import Report
from nnrt_client.conformance.saved_faults import save_faults
from nnrt_client.conformance.target import Target
from nnrt_client.model.file import read
from nnrt_client.settings import Settings
from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import TensorSpec

X = np.array([1, 2, 3], np.float32)
TYPES = (NodeType.ADD_FUSION, NodeType.MUL_FUSION, NodeType.SUB_FUSION, NodeType.ACTIVATION)


class Known(Case):
    """A case whose answer is worked out here."""

    @property
    def _answer(self) -> Answer:
        return Answer(
            self.answer, "arithmetic", inputs_digest(self.graph, self.inputs), ((np.maximum((X + 1) * 2 - 5, 0),),)
        )


def made() -> tuple[Graph, list[list[Any]]]:
    """The larger of 0 and (x + 1) * 2 - 5."""
    spec = TensorSpec(DataType.FLOAT32, X.shape)
    constants = {at: Constant.of(np.full_like(X, value)) for at, value in zip((1, 2, 3), (1, 2, 5), strict=True)}
    nodes = (
        Node(TYPES[0], (0, 1), (4,)),
        Node(TYPES[1], (4, 2), (5,)),
        Node(TYPES[2], (5, 3), (6,)),
        Node(TYPES[3], (6,), (7,), {"activation_type": ActivationType.RELU}),
    )
    return Graph((spec,) * 8, nodes, (0,), (7,), constants), [[X]]


CASE = Known("graphs/four", Level.GRAPHS, "arithmetic", TYPES, DataType.FLOAT32, made, "four")


def test_two_nodes_go_wrong_together(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The daemon adds where it is to subtract from a product; one by one all nodes are right."""
    options = {"operator": "SUB_FUSION", "as": "ADD_FUSION", "after": "MUL_FUSION"}
    flags = [flag for name, value in options.items() for flag in ("--option", f"{name}={value}")]
    daemon = start_daemon("--backend", "wrong", *flags)
    with Target(daemon.address, Settings(), 0) as target:
        report = Report(target.address, target.name, target.info, list(Kit(target).results([Answers(CASE)])))
        (result,) = report.results
        assert result.outcome.verdict is Verdict.WRONG
        assert "at [1] it is 11.0 in place of 1.0" in result.outcome.reason
        (place,) = save_faults(report, tmp_path, daemon.address, target)
    assert place == tmp_path / "graphs-four"
    part = read(place / "model-part.nnrt")
    assert [node.type for node in part.nodes] == [NodeType.MUL_FUSION, NodeType.SUB_FUSION]
    with np.load(place / "inputs-part.npz") as inputs, np.load(place / "right-part.npz") as right:
        assert [array.tolist() for array in inputs.values()] == [[2, 3, 4]]
        assert [array.tolist() for array in right.values()] == [[-1, 1, 3]]
    assert "MUL_FUSION node 0, SUB_FUSION node 1" in (place / "fault.txt").read_text()
