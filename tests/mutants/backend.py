"""The backend `mutant`: the reference backend with the defect that the option `defect` names, or with none."""

from collections.abc import Mapping
from contextlib import ExitStack

from nnrt_backend_reference import create as create_reference

from mutants.defects import DEFECTS
from nnrt_hdi.backend import Backend
from nnrt_hdi.errors import InvalidParameter


def create(options: Mapping[str, str]) -> Backend:
    """Create the backend. The entry point of the backend `mutant`."""
    name = options.get("defect")
    if name is None:
        return create_reference({})
    if name not in DEFECTS:
        raise InvalidParameter(f"there is no defect {name!r}; there are {', '.join(DEFECTS)}")
    return DEFECTS[name].put(create_reference({}), ExitStack())  # for the life of the process
