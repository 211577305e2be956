"""Command `nnrt serve`."""

import signal
from pathlib import Path
from typing import Any

import click

from nnrt_client.cli.options import Number, identity_options, settings_with
from nnrt_client.serving.server import Server, ServerSettings

_BYTES = click.IntRange(1 << 10, 2 << 40)


@click.command()
@click.argument("models", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--device", "devices", multiple=True, help="Address or name of a device. May be repeated.")
@click.option("--http", default="127.0.0.1:8000", show_default=True, help="Address for HTTP, or none.")
@click.option("--grpc", default="127.0.0.1:8001", show_default=True, help="Address for gRPC, or none.")
@click.option("--shared-memory", is_flag=True, help="Let clients on this host register shared memory.")
@click.option("--request-bytes", type=_BYTES, default=1 << 30, show_default=True, help="Most bytes of a request.")
@click.option("--held-bytes", type=_BYTES, default=4 << 30, show_default=True, help="Most bytes of all requests.")
@click.option(
    "--read-s", type=Number(0.1), default=60.0, show_default=True, help="Seconds in which requests must come."
)
@identity_options
def serve(devices: tuple[str, ...], **values: Any) -> None:
    """Serve the models of a folder by the Open Inference Protocol.

    MODELS has a folder for each model, with a folder for each version: NAME/VERSION/model.onnx.
    """
    server = Server(ServerSettings(devices=devices, **values), settings_with())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run(lambda addresses: click.echo(" ".join(["listening on", *addresses])))
