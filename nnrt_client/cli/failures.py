"""Failures of commands: each becomes one line, and an exit code."""

import errno
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
        except NnrtError as error:
            raise click.ClickException(one_line(str(error))) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # Nobody reads any more, which is no failure of ours; click ends quietly.
                raise
            named = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
            raise click.ClickException(one_line(named)) from error
        except MemoryError as error:
            raise click.ClickException("there is not enough memory") from error
        except KeyboardInterrupt as error:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from error
