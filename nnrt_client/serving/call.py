"""Call of a client: what the faces know of it, and what is told of it afterwards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nnrt_hdi.access.identity import Identity, Role

# Roles that calls need. Those of health are for anybody; all others need Role.OBSERVE.
_ROLES: Mapping[str, Role | None] = {
    "ServerLive": None,
    "ServerReady": None,
    "ModelInfer": Role.RUN,
    "ModelStreamInfer": Role.RUN,
    "RepositoryModelLoad": Role.ADMINISTER,
    "RepositoryModelUnload": Role.ADMINISTER,
    "SystemSharedMemoryRegister": Role.ADMINISTER,
    "SystemSharedMemoryUnregister": Role.ADMINISTER,
}
# Status of a call without an error.
OK = "OK"


@dataclass(slots=True)
class Call:
    """Call of a client."""

    # "grpc" or "http".
    face: str
    # The protocol's name of the call in gRPC, such as ModelInfer.
    name: str
    # Address of the client, and its host.
    peer: str
    host: str
    # Metadata of gRPC, or headers. Names are in lower case.
    metadata: Mapping[str, Any] = field(repr=False)
    # Returns the common name in the certificate of the client, empty without one.
    certificate: Callable[[], str]
    # Seconds within which the client wants the response; None for no limit.
    timeout_s: float | None = None
    # Set on the way.
    identity: Identity | None = None
    model: str = ""
    version: str = ""
    id: str = ""
    in_bytes: int = 0
    out_bytes: int = 0
    # As gRPC names it, for both faces; an error of HTTP that gRPC doesn't know, as HTTP names it.
    status: str = OK

    @property
    def role(self) -> Role | None:
        """Role that it needs; None: anybody may make it."""
        return _ROLES.get(self.name, Role.OBSERVE)
