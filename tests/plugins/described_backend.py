"""A backend that describes itself as its options say: `--option device_name=7` makes the name a number."""

from ast import literal_eval
from collections.abc import Mapping
from dataclasses import replace

from storing_backend import StoringBackend

from nnrt_hdi.backend import Backend, DeviceInfo


class _DescribedBackend(StoringBackend):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(device_name="described")
        self._fields = {name: literal_eval(value) for name, value in options.items()}

    def describe(self) -> DeviceInfo:
        return replace(super().describe(), **self._fields)


def create(options: Mapping[str, str]) -> Backend:
    return _DescribedBackend(options)
