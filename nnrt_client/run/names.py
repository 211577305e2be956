"""Distinct names for the inputs and outputs of a model."""

from collections.abc import Sequence

from nnrt_client.tensors.tensor_desc import TensorDesc


def distinct_names(what: str, names: Sequence[str]) -> list[str]:
    """Return distinct names for inputs or outputs: those without a name, or with an earlier one's, get one."""
    taken = set(names)
    distinct: dict[str, None] = {}
    for index, name in enumerate(names):
        if not name or name in distinct:
            name = f"{name}#{index}" if name else f"{what}{index}"
            while name in taken:
                name += "#"
            taken.add(name)
        distinct[name] = None
    return list(distinct)


def named_descs(what: str, descs: Sequence[TensorDesc]) -> dict[str, TensorDesc]:
    """Rename descriptions so that their names are distinct; return them by name."""
    for desc, name in zip(descs, distinct_names(what, [desc.name for desc in descs]), strict=True):
        desc.name = name
    return {desc.name: desc for desc in descs}
