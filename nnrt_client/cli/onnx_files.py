"""ONNX files in commands: their contents, obstacles that prevent an import, and options that remove these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnrt_client.cli.options import FixedInputs, open_fixed
from nnrt_client.cli.printing import print_line, print_table
from nnrt_client.model_session.opened_model import OpenedModel
from nnrt_client.onnx_import.problems import NotImported, Problem, grouped
from nnrt_hdi.errors import NnrtError, Unsupported

if TYPE_CHECKING:
    from nnrt_client.onnx_import.contents import Contents
    from nnrt_client.onnx_import.declared import DeclaredTensor

# Sizes that a trial import gives to open dimensions: to the first of each input, and to all others.
_BATCH, _SIZE = 1, 128
_LONGEST_VALUE = 200

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Nodes that can't be imported for the same reason, and options with which they can be imported."""

    problems: Sequence[Problem]
    to_type: Sequence[str]

    @property
    def title(self) -> str:
        """Name of the obstacle: its first node, and the number of its other nodes."""
        first, others = self.problems[0], len(self.problems) - 1
        name = f"{first.operator} {first.node!r}".strip() if first.operator else "the model"
        return f"{name} and {others} more" if others else name

    def describe(self) -> dict[str, Any]:
        """Return the obstacle as --json prints it."""
        return {
            "operator": self.problems[0].operator,
            "nodes": [problem.node for problem in self.problems],
            "reason": self.problems[0].reason,
            "try": list(self.to_type),
        }


def contents_of(model: Path) -> Contents:
    """Return the contents of an ONNX file. Raises Unsupported if the package onnx is missing."""
    try:
        from nnrt_client.onnx_import.contents import read_contents
    except ImportError as error:
        raise Unsupported("ONNX models need the package onnx; install nnrt[onnx]") from error
    return read_contents(model)


def obstacles(model: Path, fixed: FixedInputs, contents: Contents, error: Unsupported) -> list[Obstacle]:
    """Return the obstacles to an import, each with the --shape options that would remove it.

    If a constant in place of an input would remove an obstacle, too, the obstacle's reason says so.
    """
    problems = error.problems if isinstance(error, NotImported) else (Problem(error.message),)
    options, left = _try_shapes(model, fixed, contents, problems)
    return [Obstacle(group, [] if group[0] in left else options) for group in grouped(problems)]


def definite_shapes(inputs: Sequence[DeclaredTensor], fixed: FixedInputs) -> dict[str, Shape]:
    """Return a definite shape for each input with open dimensions; dimensions of the same name get the same size."""
    known = {*fixed.shapes, *fixed.constants}
    open_inputs = [one for one in inputs if one.shape is not None and not one.is_fixed and one.name not in known]
    sizes = {dim: _SIZE for one in open_inputs for dim in one.shape or () if isinstance(dim, str)}
    sizes |= {one.shape[0]: _BATCH for one in open_inputs if one.shape and isinstance(one.shape[0], str)}
    return {
        one.name: tuple(
            dim if isinstance(dim, int) else sizes[dim] if dim else _SIZE if axis else _BATCH
            for axis, dim in enumerate(one.shape or ())
        )
        for one in open_inputs
    }


def shape_options(shapes: Mapping[str, Shape]) -> list[str]:
    """Return shapes as --shape options."""
    return [f"--shape {name}={','.join(map(str, shape))}" for name, shape in shapes.items()]


def _try_shapes(
    model: Path, fixed: FixedInputs, contents: Contents, problems: Sequence[Problem]
) -> tuple[list[str], Sequence[Problem]]:
    """Return --shape options that solve some of the problems, and the problems that remain with them."""
    definite = definite_shapes(contents.inputs, fixed)
    if not definite:
        return [], problems
    try:
        open_fixed(model, fixed.with_shapes(definite))
    except NotImported as error:
        left = {(problem.operator, problem.node) for problem in error.problems}
        return shape_options(definite), [one for one in problems if (one.operator, one.node) in left]
    except NnrtError:  # Other sizes might work; which ones is unknown.
        return [], problems
    return shape_options(definite), ()


# ---- printing


def named_dims(found: OpenedModel, contents: Contents) -> dict[str, list[int | str]]:
    """Return the dimensions of each input and output: each a size, the file's name for an open size, or "?"."""
    declared = {one.name: one.shape for one in (*contents.inputs, *contents.outputs)}
    return {
        spec.name: [
            size if size >= 0 else name if isinstance(name, str) else "?"
            for size, name in zip_longest(spec.shape, declared.get(spec.name) or (), fillvalue=None)
            if size is not None
        ]
        for spec in (*found.inputs, *found.outputs)
    }


def declared_dims(tensor: DeclaredTensor) -> list[int | str] | None:
    """Return the dimensions that the file declares ("?" for an unnamed open one), or None if the rank is open."""
    return None if tensor.shape is None else ["?" if dim is None else dim for dim in tensor.shape]


def describe_contents(contents: Contents) -> dict[str, Any]:
    """Return the contents of an ONNX file as --json prints them."""
    return {
        "producer": contents.producer,
        "opsets": dict(contents.opsets),
        "nodes": sum(contents.operators.values()),
        "operators": dict(contents.operators),
        "metadata": dict(contents.metadata),
    }


def print_contents(contents: Contents) -> None:
    """Print the origin of an ONNX file and its metadata."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in contents.opsets.items())
    print_line(f"operator sets: {opsets}; producer: {contents.producer or 'not stated'}")
    for name, value in contents.metadata.items():
        print_line(f"metadata {name}: {value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + '...'}")


def print_obstacles(model: Path, contents: Contents, found: Sequence[Obstacle]) -> None:
    """Print a table of the obstacles, and what to type."""
    print_table(("ONNX node", "why it can't be imported"), [(one.title, one.problems[0].reason) for one in found])
    count = sum(len(one.problems) for one in found)
    nodes = sum(contents.operators.values())
    print_line(f"{model}: {count} of {nodes} ONNX nodes can't be imported")
    for to_type in dict.fromkeys(tuple(one.to_type) for one in found if one.to_type):
        names = ", ".join(one.title for one in found if tuple(one.to_type) == to_type)
        print_line(f"for {names} add: {' '.join(to_type)}")
