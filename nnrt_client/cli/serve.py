"""Command `nnrt serve`."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from nnrt_client.cli.options import POSITIVE, Number, identity_options, require_addresses, settings_with
from nnrt_client.serving.repository.control import Control
from nnrt_client.serving.server_settings import ServerSettings

_BYTES = click.IntRange(1 << 10, 2 << 40)


@click.command()
@click.argument("models")
@click.option("--device", "devices", multiple=True, help="Address or name of a device. May be repeated.")
@click.option("--http", default="127.0.0.1:8000", show_default=True, help="Address for HTTP, or none.")
@click.option("--grpc", default="127.0.0.1:8001", show_default=True, help="Address for gRPC, or none.")
@click.option("--shared-memory", is_flag=True, help="Let clients on this host register shared memory.")
@click.option("--request-bytes", type=_BYTES, default=1 << 30, show_default=True, help="Most bytes of a request.")
@click.option("--held-bytes", type=_BYTES, default=4 << 30, show_default=True, help="Most bytes of all requests.")
@click.option(
    "--read-s", type=Number(0.1), default=60.0, show_default=True, help="Seconds in which requests must come."
)
@click.option(
    "--control",
    type=click.Choice([control.value for control in Control]),
    default=Control.WATCH.value,
    show_default=True,
    callback=lambda _, __, given: Control(given),
    help="Who decides what is loaded: the folder (watch), or calls of the protocol (explicit).",
)
@click.option(
    "--look-s",
    type=POSITIVE,
    default=5.0,
    show_default=True,
    help="Seconds after which the folder is looked at although the host told of no change, as it can't of a file"
    " server or a URL.",
)
@click.option(
    "--quiet-s",
    type=POSITIVE,
    default=1.0,
    show_default=True,
    help="Seconds for which files must be unchanged before they are loaded.",
)
@click.option(
    "--most-waiting-per-identity",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Most requests for inferences of one identity under way; 0: no limit.",
)
@click.option(
    "--pass-identities/--no-pass-identities",
    default=True,
    show_default=True,
    help="Tell daemons on whose behalf runs are, by the names of --access. A daemon with an access file must give the"
    " server the role serve.",
)
@click.option("--metrics", default="none", show_default=True, help="Address for Prometheus, or none.")
@click.option("--tls-cert", default="", metavar="FILE", help="PEM file of the server's certificate: TLS everywhere.")
@click.option("--tls-key", default="", metavar="FILE", help="PEM file of its private key.")
@click.option(
    "--tls-client-ca",
    default="",
    metavar="FILE",
    help="PEM file of the authority of clients' certificates, which must have one.",
)
@click.option("--access", default="", metavar="FILE", help="Identities that may call, with their roles; else all may.")
@click.option("--insecure", is_flag=True, help="Listen beyond loopback although any client there may use the models.")
@click.option("--audit-log", default="", metavar="FILE", help="JSON lines of refusals and of what administrators do.")
@click.option("--access-log", default="", metavar="FILE", help="JSON line for each call; - for standard error.")
@partial(identity_options, prefix="device-")
def serve(devices: tuple[str, ...], **values: Any) -> None:
    """Serve the models of a folder by the Open Inference Protocol.

    MODELS has a folder for each model, with a folder for each version: NAME/VERSION/model.onnx. It may be a URL, such
    as s3://bucket/models, which is copied to the user's cache (needs nnrt[serving-remote]).
    """
    for device in devices or (None,):
        require_addresses(device)
    # Not at the top: other commands would wait for it.
    from nnrt_client.serving.server import Server

    logging.getLogger("nnrt_client.serving").setLevel(logging.INFO)
    server = Server(ServerSettings(devices=devices, **values), settings_with())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    with _shown_loads() as show:
        server.run(lambda addresses: click.echo(" ".join(["listening on", *addresses])), show)


@contextmanager
def _shown_loads() -> Iterator[Callable[[int, int], object]]:
    """Yield a function that shows how many models were loaded, on a terminal."""
    bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    task = bar.add_task("loading models", total=None)

    def show(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        (bar.start if done < total else bar.stop)()
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(sys.stderr)  # Which the bar replaces while it is shown.

    try:
        yield show
    finally:
        show(0, 0)
