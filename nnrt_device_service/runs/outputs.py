"""Checks what a backend gives where arrays are expected of it."""

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
    places: Sequence[Array | None] = (),
) -> None:
    """Refuse what can't be the outputs of a run, with UnavailableDevice.

    `forms` are those that the model says, `known` is what was known of the run before it started, and `places` has the
    memory that it was given for some: that very thing is right.
    """
    if not isinstance(outputs, list | tuple) or len(outputs) != len(forms):
        raise UnavailableDevice(
            f"the device {device_name!r} gave {_told(outputs)} for the outputs of a run; they must be a list of"
            f" {len(forms)}"
        )
    for index, (form, output) in enumerate(zip(forms, outputs, strict=True)):
        if places and output is places[index] and output is not None:
            continue
        spec = known[index] if len(known) == len(forms) else form.spec
        is_array = isinstance(output, np.ndarray | np.generic)
        if not is_array or form.dtype not in (None, output.dtype) or not spec.accepts(output.shape):
            name = f" {form.name!r}" if form.name else ""
            raise UnavailableDevice(
                f"the device {device_name!r} gave {_told(output)} for output {index}{name} of a run; it must be {spec}"
            )


def _told(given: object) -> str:
    """Tell what a backend gave, as far as clients may know it."""
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
