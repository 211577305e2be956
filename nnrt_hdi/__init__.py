"""The contract between NNRt clients, device daemons and backends: values, operators, errors, and the wire.

Backends import `nnrt_hdi.backend`, `graph`, `tensor`, `ops`, `enums` and `errors`; only the two ends of the wire import
`nnrt_hdi.wire` and the generated messages in `nnrt_hdi.v2`.
"""

# Not from importlib.metadata, which takes a tenth of the time to import nnrt_client.
__version__ = "0.1.0"

# Version of the hardware device interface (HDI) that daemons offer, and of our protocol within its major version.
HDI_VERSION = (2, 1)
PROTOCOL_MINOR = 0
