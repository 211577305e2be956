"""Backend whose options replace its description: `--option device_name=7` makes the name a number.

`device_type=GPU` makes it a GPU, and `nothing=True` makes it describe nothing.
"""

from ast import literal_eval
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from storing_backend import StoringBackend

from nnrt_hdi.backend import Backend, DeviceInfo
from nnrt_hdi.enums import DeviceType


class _DescribedBackend(StoringBackend):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(device_name="described")
        types = DeviceType.__members__
        self._fields: dict[str, Any] = {
            name: types[value] if value in types else literal_eval(value) for name, value in options.items()
        }

    def describe(self) -> DeviceInfo:
        if self._fields.get("nothing"):
            return cast("DeviceInfo", None)
        return replace(super().describe(), **self._fields)


def create(options: Mapping[str, str]) -> Backend:
    return _DescribedBackend(options)
