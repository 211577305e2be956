"""TLS of the daemon's addresses, as gRPC takes it."""

from typing import Any

import grpc

from nnrt_hdi.access.certificates import Certificates
from nnrt_hdi.access.watched_files import WatchedFiles


def server_credentials(files: WatchedFiles[Certificates]) -> Any:
    """Return gRPC's credentials, which take the files' content anew when it changes."""

    def configuration() -> Any:
        now = files.content()
        return grpc.ssl_server_certificate_configuration([(now.key, now.certificate)], now.client_ca)

    return grpc.dynamic_ssl_server_credentials(configuration(), configuration, files.content().client_ca is not None)
