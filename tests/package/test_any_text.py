"""Whatever text a person or an environment gives: it is taken, or refused by an error of ours."""

import os
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import click
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from part import examples

from nnrt_client import NnrtError, Runtime
from nnrt_client.cli import main
from nnrt_client.model_session.model_cache import BYTES_VARIABLE, cache_bytes, cache_directory
from nnrt_client.onnxruntime import RunOptions
from nnrt_client.onnxruntime.options import TIMEOUT_KEY
from nnrt_client.onnxruntime.providers import _READERS, load_options
from nnrt_client.session.address import Address
from nnrt_client.settings import DEVICES_VARIABLE, addresses_from_environment
from nnrt_device_service.cli.serve import serve
from nnrt_device_service.transport.addresses import require_free_port

pytestmark = pytest.mark.table

# What stands in an argument or a variable has no zero character.
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
# Digits that int() doesn't take, those of other scripts, and what numbers, lists and pairs are written with.
NUMERALS = st.text("0123456789²½٣+-_.,:;=/[]{}\"'eExnaif ", max_size=12)
HARD = ["9" * 5000, "1e400", "1e308", "-1", "nan", "infinity", "0x10", "1_0", "٣", "²", "70000", ""]
HARD += [f"x={text}" for text in HARD]
TEXTS = st.one_of(st.text(CHARACTERS, max_size=20), NUMERALS)


def any_text(test: Callable[..., None]) -> Callable[..., None]:
    """Give a test texts: all that are HARD, and random ones."""
    for text in HARD:
        test = example(text=text)(test)
    return given(text=TEXTS)(test)


OPTIONS = [
    (name, option.opts[0])
    for name, command in main.commands.items()
    if not isinstance(command, click.Group) and name != "serve"
    for option in command.params
    if isinstance(option, click.Option) and not option.is_flag
]
# Commands that serve until they are stopped: only what they take is looked at.
SERVERS = {"nnrt": main.commands["serve"], "nnrt-device": serve}
SERVER_OPTIONS = [
    (program, option.opts[0])
    for program, command in SERVERS.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.is_flag
]


@pytest.mark.parametrize(("command", "option"), OPTIONS, ids=[" ".join(one) for one in OPTIONS])
@settings(max_examples=examples(20))
@any_text
def test_options_of_commands(command: str, option: str, text: str) -> None:
    """The model isn't there, which is told at the latest."""
    result = CliRunner().invoke(main, [command, "no such.onnx", "--device", "127.0.0.1:1", f"{option}={text}"])
    assert isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code in (1, 2)
    assert "Error: " in result.stderr


@pytest.mark.parametrize(("program", "option"), SERVER_OPTIONS, ids=[" ".join(one) for one in SERVER_OPTIONS])
@settings(max_examples=examples(20))
@any_text
def test_options_of_servers(program: str, option: str, text: str) -> None:
    """By the command line, and by the environment. What they mean together is looked at when they start."""
    command, others = SERVERS[program], ["models"] * (program == "nnrt")
    (variable,) = (one.envvar for one in command.params if option in one.opts)
    given: list[tuple[list[str], dict[str, str]]] = [([f"{option}={text}"], {})]
    if isinstance(variable, str):
        given.append(([], {variable: text}))
    for arguments, environment in given:
        with patch.dict(os.environ, environment), suppress(click.UsageError):
            command.make_context("serve", [*others, *arguments])


@any_text
def test_ports(text: str) -> None:
    with suppress(NnrtError):
        require_free_port(f"127.0.0.1:{text}", "--listen")
    Address(f"127.0.0.1:{text}").refuses(0.1)
    Address(f"unix:/nowhere/{text}").refuses(0.1)


@any_text
def test_the_environment_of_a_client(text: str) -> None:
    with patch.dict(os.environ, {BYTES_VARIABLE: text, DEVICES_VARIABLE: text, "XDG_CACHE_HOME": text}):
        with suppress(NnrtError):
            assert cache_bytes() >= 0
        assert cache_directory().is_absolute()
        with suppress(NnrtError), Runtime() as runtime:
            assert runtime.addresses == tuple(dict.fromkeys(addresses_from_environment()))


@any_text
def test_milliseconds_of_a_run(text: str) -> None:
    options = RunOptions()
    options.add_run_config_entry(TIMEOUT_KEY, text)
    with suppress(NnrtError):
        assert options.timeout_ms is not None and options.timeout_ms >= 1


@pytest.mark.parametrize("name", sorted(_READERS))
@any_text
def test_options_of_a_provider(name: str, text: str) -> None:
    with suppress(NnrtError):
        load_options({name: text})
