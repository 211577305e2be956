"""Command `nnrt` for operators and developers."""

import logging
import sys

import click

from nnrt_client.cli.bench import bench
from nnrt_client.cli.cache import cache
from nnrt_client.cli.compare import compare
from nnrt_client.cli.compile import compile_model
from nnrt_client.cli.conformance import conformance
from nnrt_client.cli.devices import devices
from nnrt_client.cli.doctor import doctor
from nnrt_client.cli.explain import explain
from nnrt_client.cli.failures import Commands
from nnrt_client.cli.inspect import inspect
from nnrt_client.cli.models import models
from nnrt_client.cli.printing import OneLineFormatter
from nnrt_client.cli.run import run
from nnrt_client.cli.serve import serve
from nnrt_client.cli.top import top
from nnrt_hdi import __version__


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nnrt")
def main() -> None:
    """Run neural networks on devices in other processes and on other hosts.

    A MODEL is an ONNX file, a model saved by Model.save, or an offline model made by `nnrt compile`. Exit codes: 0 on
    success, 1 on failure, 2 for wrong use, 130 when interrupted.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


for _command in (
    devices,
    top,
    doctor,
    inspect,
    explain,
    compile_model,
    run,
    serve,
    models,
    bench,
    compare,
    conformance,
    cache,
):
    main.add_command(_command)
