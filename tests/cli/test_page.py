"""docs/cli.md tells of every command and option what they say themselves."""

from pathlib import Path

import click
import pytest

from nnrt_client.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs/cli.md"


def options_table(name: str) -> str:
    """The table of a command in docs/cli.md. To renew it, paste what this returns."""
    command = main.commands[name]
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for part in command.commands.values() if isinstance(command, click.Group) else (command,):
        for option in part.params:
            if isinstance(option, click.Option):
                flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
                default = "required" if option.required else f"`{option.default}`" if option.show_default else ""
                rows.append(f"| {flags} | {default} | {option.help} |")
    return "\n".join(dict.fromkeys(rows))


@pytest.mark.parametrize("name", main.commands)
def test_the_page_lists_every_option(name: str) -> None:
    _, found, section = PAGE.read_text().partition(f"## nnrt {name}\n")
    assert found
    assert options_table(name) in section.split("\n## ")[0]
