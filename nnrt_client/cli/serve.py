"""Command `nnrt serve`."""

import signal
from pathlib import Path
from typing import Any

import click

from nnrt_client.cli.options import identity_options, settings_with
from nnrt_client.serving.server import Server, ServerSettings


@click.command()
@click.argument("models", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--device", "devices", multiple=True, help="Address or name of a device. May be repeated.")
@click.option("--http", default="127.0.0.1:8000", show_default=True, help="Address for HTTP.")
@click.option("--grpc", default="127.0.0.1:8001", show_default=True, help="Address for gRPC.")
@click.option("--shared-memory", is_flag=True, help="Let clients on this host register shared memory.")
@identity_options
def serve(devices: tuple[str, ...], **values: Any) -> None:
    """Serve the models of a folder by the Open Inference Protocol.

    MODELS has a folder for each model, with a folder for each version: NAME/VERSION/model.onnx.
    """
    server = Server(ServerSettings(devices=devices, **values), settings_with())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run(lambda addresses: click.echo(" ".join(["listening on", *addresses])))
