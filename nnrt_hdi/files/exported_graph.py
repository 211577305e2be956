"""Export of a prepared graph as parts that can be stored and loaded again.

The first part is a file (see `nnrt_hdi.files.container`) with the inferred graph and the options of the compilation.
The other parts contain its constants. A large constant is a part of its own, as a view of its memory. Small constants,
and large ones beyond a limit, are copied into the last part.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OutOfMemory
from nnrt_hdi.files.container import ALIGNMENT, packed, unpacked
from nnrt_hdi.files.graph_file import constant_parts, described_graph, read_graph
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph
from nnrt_hdi.part import Part

# The most constants that have parts of their own, and the bytes that such a constant has at least.
_OWN_PARTS = 64
_OWN_PART_BYTES = 1 << 20


def export_parts(kind: str, graph: Graph, *, enable_float16: bool) -> list[Part]:
    """Return the parts of an inferred graph. `kind` names what reads them: a backend and its format."""
    about = {"graph": described_graph(graph), "float16": enable_float16}
    constants = constant_parts(graph)
    parts = [Part.of(b"".join(packed(kind, about, [])))]
    for together in _part_contents({sha256: part.data.nbytes for sha256, part in constants.items()}):
        if len(together) == 1:
            parts.append(constants[together[0]])
        else:
            parts.append(Part.of(b"".join(piece for sha256 in together for piece in _padded(constants[sha256].data))))
    return parts


def read_exported(kind: str, parts: Sequence[Part]) -> tuple[Graph, bool]:
    """Return an exported graph, with constants as views of the parts, and whether it computes in FLOAT16.

    Its shapes are inferred again, because kernels and limits rely on them.

    Raises:
        InvalidFile: The parts aren't what `export_parts` returned.
        OutOfMemory: A tensor is too large.
    """
    try:
        graph, enable_float16 = _read(kind, parts)
        known = inferred_graph(graph)
        _require_same(graph, known)
    except (InvalidFile, OutOfMemory):
        raise
    except NnrtError as error:
        raise InvalidFile(error.message, place=error.place) from error
    return known, enable_float16


def _read(kind: str, parts: Sequence[Part]) -> tuple[Graph, bool]:
    if not parts:
        raise InvalidFile("there are no parts; give those that were exported")
    about, _ = unpacked(kind, parts[0].data)
    graph, enable_float16 = about.get("graph"), about.get("float16")
    if not isinstance(enable_float16, bool):
        raise InvalidFile("it does not say whether it computes in FLOAT16")
    sizes = _sizes(graph)
    placed = _part_contents(sizes)
    if len(parts) != 1 + len(placed):
        raise InvalidFile(f"there are {len(parts)} parts; it has {1 + len(placed)}")
    constants: dict[bytes, Part] = {}
    for number, (together, part) in enumerate(zip(placed, parts[1:], strict=True), 1):
        if together == [part.sha256]:
            constants[part.sha256] = part
        else:
            constants |= _constants(number, together, part.data, sizes)
    return read_graph(graph, constants), enable_float16


def _sizes(described: Any) -> dict[bytes, int]:
    """Return the sizes of a described graph's constants, by digest."""
    try:
        sizes = {bytes.fromhex(sha256): size for _, sha256, size in described["constants"]}
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidFile("it does not say which constants it has") from error
    if not all(type(size) is int and size >= 0 for size in sizes.values()):
        raise InvalidFile("it does not say how long its constants are")
    return sizes


def _part_contents(sizes: Mapping[bytes, int]) -> list[list[bytes]]:
    """Return the digests of the constants in each part after the first."""
    by_size = sorted(sizes, key=lambda sha256: (-sizes[sha256], sha256))
    own = [[sha256] for sha256 in by_size[:_OWN_PARTS] if sizes[sha256] >= _OWN_PART_BYTES]
    rest = by_size[len(own) :]
    return [*own, rest] if rest else own


def _padded(data: memoryview) -> tuple[memoryview, bytes]:
    return data, bytes(-data.nbytes % ALIGNMENT)


def _constants(
    number: int, together: Sequence[bytes], part: memoryview, sizes: Mapping[bytes, int]
) -> dict[bytes, Part]:
    """Return the constants in a part, after checking their digests."""
    constants: dict[bytes, Part] = {}
    end = 0
    for sha256 in together:
        start, end = end, end + sizes[sha256]
        constants[sha256] = Part.of(part[start:end])
        padded = end if len(together) == 1 else end + -end % ALIGNMENT
        if constants[sha256].sha256 != sha256 or any(part[end:padded]):
            raise InvalidFile(f"part {number} is not what was exported; it is damaged, or in another's place")
        end = padded
    if end != part.nbytes:
        raise InvalidFile(f"part {number} has {part.nbytes} bytes; {end} were exported")
    return constants


def _require_same(declared: Graph, known: Graph) -> None:
    """Refuse a graph that declares other shapes or types than `inferred_graph` finds."""
    for index, node in enumerate(declared.nodes):
        given, found = ([graph.tensors[at] for at in node.outputs] for graph in (declared, known))
        if given != found:
            raise InvalidParameter(
                f"its outputs are said to be {', '.join(map(str, given))}, but are {', '.join(map(str, found))}",
                place=declared.place(index),
            )
