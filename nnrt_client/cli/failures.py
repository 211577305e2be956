"""Failures of commands: each becomes one line, and an exit code."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from nnrt_client.cli.printing import one_line
from nnrt_hdi.errors import NnrtError

INTERRUPTED = 130


class Commands(click.Group):
    """Commands whose failures are one line on the standard error, and never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (NnrtError, OSError, MemoryError) as error:
            raise click.ClickException(_told(error)) from error
        except KeyboardInterrupt as error:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from error


@contextmanager
def exiting_with(code: int) -> Iterator[None]:
    """Have failures in the block exit with this code, where the usual one says something else."""
    try:
        yield
    except (NnrtError, OSError, MemoryError) as error:
        click.echo(f"Error: {_told(error)}", err=True)
        raise click.exceptions.Exit(code) from error


def _told(error: NnrtError | OSError | MemoryError) -> str:
    """The line of a failure. Raises the error where nobody reads any more: no failure of ours, click ends quietly."""
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, NnrtError):
        return one_line(str(error))
    if error.errno == errno.EPIPE:
        raise error
    return one_line(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
