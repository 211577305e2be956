"""Report of loading a model on several devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnrt_client.build.build_task import BuildReport


@dataclass(frozen=True, slots=True)
class PoolReport(BuildReport):
    """Report of the first replica's build, with the reports of all replicas and the reasons of refusals by address."""

    replicas: Mapping[str, BuildReport] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
