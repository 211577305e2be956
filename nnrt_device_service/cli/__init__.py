"""Command `nnrt-device`: serves devices, lists backends, makes keys and reports, and manages the model store."""

from importlib import import_module
from typing import cast

import click

from nnrt_hdi import __version__

# Module of each command. It is imported when the command runs, because most commands need few of a daemon's modules.
_COMMANDS = {
    "backends": "backends",
    "cache": "cache",
    "drain": "fleet",
    "keys": "keys",
    "new-backend": "new_backend",
    "ps": "fleet",
    "report": "report",
    "restart": "fleet",
    "serve": "serve",
    "systemd": "systemd",
    "up": "fleet",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"{__name__}.{_COMMANDS[cmd_name]}")
        return cast(click.Command, getattr(module, cmd_name.replace("-", "_")))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nnrt-device")
def main() -> None:
    """Offer an accelerator to NNRt clients on this host or across a network."""
