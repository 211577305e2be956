"""Check of the outputs that a backend returns."""

from collections.abc import Sequence

import numpy as np

from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.errors import UnavailableDevice
from nnrt_hdi.tensor import Array, TensorForm, TensorSpec


def require_outputs(
    device_name: str,
    forms: Sequence[TensorForm],
    outputs: object,
    known: Sequence[TensorSpec] = (),
    arrays: Sequence[Array | None] = (),
) -> None:
    """Raise UnavailableDevice unless the outputs that a backend returned are right for the model.

    `forms` are the outputs that the model declares, `known` the specs that were known before the run started. `arrays`
    are the arrays that the backend was given to write outputs to: an output that is the given object needs no check.
    """
    if not isinstance(outputs, list | tuple) or len(outputs) != len(forms):
        raise UnavailableDevice(
            f"the device {device_name!r} gave {_text(outputs)} for the outputs of a run; they must be a list of"
            f" {len(forms)}"
        )
    for index, (form, output) in enumerate(zip(forms, outputs, strict=True)):
        if arrays and output is arrays[index] and output is not None:
            continue
        spec = known[index] if len(known) == len(forms) else form.spec
        is_array = isinstance(output, np.ndarray | np.generic)
        if not is_array or form.dtype not in (None, output.dtype) or not spec.accepts(output.shape):
            name = f" {form.name!r}" if form.name else ""
            raise UnavailableDevice(
                f"the device {device_name!r} gave {_text(output)} for output {index}{name} of a run; it must be {spec}"
            )


def _text(given: object) -> str:
    """Describe what a backend returned, without contents that clients must not see."""
    match given:
        case None:
            return "None"
        case np.ndarray() | np.generic():
            return f"{given.dtype}{list(given.shape)}"
        case list() | tuple():
            return f"a {type(given).__name__} of {len(given)}"
        case DeviceRegion():
            return f"{given.spec} in memory that the run was not given for it"
        case _:
            return f"an object of type {type(given).__name__}"
