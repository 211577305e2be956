"""Reference sections of the commands, made from the parsers of `nnrt` and `nnrt-device`."""

import inspect
from collections.abc import Iterator

import click

from nnrt_client.cli import main as nnrt
from nnrt_device_service.cli import main as nnrt_device


def client_commands() -> str:
    """Return a section for each command of `nnrt`."""
    return "\n".join(_sections(nnrt, "nnrt"))


def daemon_commands() -> str:
    """Return a section for each command of `nnrt-device`; the options of `serve` are on the page of the settings."""
    return "\n".join(_sections(nnrt_device, "nnrt-device"))


def _sections(group: click.Group, name: str, level: int = 2) -> Iterator[str]:
    for command_name in group.list_commands(click.Context(group)):
        if (command := group.get_command(click.Context(group), command_name)) is None:
            raise LookupError(f"{name} lists a command {command_name!r} that it doesn't have")
        full_name = f"{name} {command_name}"
        context = click.Context(command, info_name=full_name)
        pieces = " ".join(command.collect_usage_pieces(context))
        yield from (f"{'#' * level} {full_name}", "", "```text", f"{full_name} {pieces}", "```", "")
        # Click marks paragraphs that it must not wrap with \b, and the end of the help with \f.
        about = inspect.cleandoc(command.help or "").partition("\f")[0].replace("\b\n", "")
        yield from (about.replace("<", "&lt;"), "")
        if isinstance(command, click.Group):
            yield from _sections(command, full_name, level + 1)
        elif full_name != "nnrt-device serve":
            yield from _options(command)


def _options(command: click.Command) -> Iterator[str]:
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if not options:
        return
    yield from ("| option | default | meaning |", "|---|---|---|")
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        default = "required" if option.required else f"`{option.default}`" if option.show_default else ""
        meaning = (option.help or "").replace("|", "\\|").replace("<", "&lt;")
        yield f"| {flags} | {default} | {meaning} |"
    yield ""
