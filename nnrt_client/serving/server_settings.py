"""Settings of a server of models. The command reads them without what it takes to serve."""

from dataclasses import dataclass

from nnrt_client.serving.repository.control import Control
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ports import is_on_this_host

# Stands for an address of a face that is left out.
NOWHERE = "none"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server; the options of `nnrt serve` describe them."""

    models: str
    devices: tuple[str, ...]
    http: str
    grpc: str
    metrics: str = NOWHERE
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    access: str = ""
    audit_log: str = ""
    access_log: str = ""
    insecure: bool = False
    most_waiting_per_identity: int = 0
    pass_identities: bool = True
    shared_memory: bool = False
    request_bytes: int = 1 << 30
    held_bytes: int = 4 << 30
    read_s: float = 60.0
    control: Control = Control.WATCH
    look_s: float = 5.0
    quiet_s: float = 1.0
    drain_s: float = 30.0

    def require_guarded(self, place: str, address: str) -> None:
        """Raise InvalidParameter if other hosts can reach an address and clients need neither token nor certificate."""
        is_guarded = self.tls_cert and (self.tls_client_ca or self.access)
        if not (is_guarded or self.insecure or is_on_this_host(address)):
            raise InvalidParameter(
                "other hosts can reach it and could use the models; give --tls-cert and --tls-key with --access or"
                " --tls-client-ca (`nnrt-device keys` makes the files), or --insecure",
                place=f"{place} {address!r}",
            )
