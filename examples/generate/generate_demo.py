"""Demonstration of devices that remember: `make demo-generate`.

A small decoder, which has learned from this repository's pages, writes a text on two devices. The device with its state
is killed in the middle; the other one goes on. The exit status is 0 if the text is the same as without the kill.
"""

import logging
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from decoder import Decoder
from export import growing
from processes import Started, started
from rich.console import Console
from text import Tokenizer
from train_decoder import load as load_decoder

from nnrt_client import Model, ModelSession, load, sample, uniforms

PROMPT, TOKENS, SEED = "The daemon", 160, 7
TOP_K, TEMPERATURE = 10, 0.6
# After so many tokens the daemon that writes is killed.
KILL_AFTER = TOKENS // 2

console = Console(highlight=False)


def main() -> None:
    # Ctrl-C and SIGTERM both leave the `with` below, which ends the processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.disable(logging.WARNING)  # That the killed device is missing would stand in the middle of the text.
    console.rule("a decoder that has learned from the repository's pages")
    with console.status("learning, about a minute; the next time it is there already"):
        tokenizer, decoder = load_decoder()
    console.print(f"{sum(map(np.size, decoder.weights.values())):,} weights, {decoder.sizes.tokens} tokens")
    prompt = np.array([tokenizer.encode(PROMPT)])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnrt-")))
        path = folder / "decoder.onnx"
        onnx.save(growing(decoder), path)

        console.rule("two devices")
        serve = ("serve", "--backend", "onnxruntime", "--option", "threads=1", "--listen")
        daemons = [
            stack.enter_context(started("nnrt_device_service", *serve, f"unix:{folder}/{name}", "--name", name))
            for name in ("left", "right")
        ]
        session = stack.enter_context(load(path, [daemon.address for daemon in daemons], cache=False, ways="program"))
        console.print(f"the model is on {' and '.join(device.name for device in session.devices)}")
        glue = sample(session, top_k=TOP_K, temperature=TEMPERATURE)

        console.rule("what it writes")
        list(written(session, glue, prompt))  # Compiles the glue on one device.
        began = time.perf_counter()
        undisturbed = list(written(session, glue, prompt))
        per_second = TOKENS / (time.perf_counter() - began)
        console.print(PROMPT + tokenizer.decode(undisturbed))

        console.rule("the same, while the device that writes is killed")
        disturbed, pause_s = disturbed_text(session, glue, prompt, tokenizer, daemons)
        here = tokens_per_second_here(path, decoder, prompt)
        console.rule()
        console.print(f"{per_second:.0f} tokens/s on a device; {here:.0f} tokens/s with ONNX Runtime in this process")
        console.print(f"the kill was a pause of {pause_s * 1000:.0f} ms")
        if disturbed != undisturbed:
            raise SystemExit("the texts differ")
        console.print("both texts are the same")


def written(session: ModelSession, glue: Model, prompt: Any) -> Iterator[int]:
    """Yield the tokens that follow a prompt, as they come from the device."""
    inputs = {
        "input_ids": prompt,
        "attention_mask": np.ones_like(prompt),
        "position_ids": np.arange(prompt.shape[1])[None],
        **uniforms(SEED, TOKENS),
    }
    with session.sequence() as sequence:
        for values in sequence.loop(inputs, glue=glue, deliver=["input_ids"], max_steps=TOKENS):
            yield int(values["input_ids"][0, 0])


def disturbed_text(
    session: ModelSession, glue: Model, prompt: Any, tokenizer: Tokenizer, daemons: list[Started]
) -> tuple[list[int], float]:
    """Return the tokens of a text, and the longest pause, while the daemon that writes it is killed."""
    tokens: list[int] = []
    before_runs = runs_by_address(session)
    pause_s, before = 0.0, time.perf_counter()
    console.print(PROMPT, end="")
    for token in written(session, glue, prompt):
        now = time.perf_counter()
        pause_s, before = max(pause_s, now - before), now
        tokens.append(token)
        console.print(tokenizer.decode([token]), end="")
        if len(tokens) == KILL_AFTER:
            after = runs_by_address(session)
            (owner,) = (daemon for daemon in daemons if after[daemon.address] > before_runs[daemon.address])
            owner.process.kill()
            console.print(" [bold red]\\[its daemon was killed][/] ", end="")
            before = time.perf_counter()
    console.print()
    return tokens, pause_s


def runs_by_address(session: ModelSession) -> dict[str, int]:
    """Return how many runs each device has made."""
    counters = {device.address: device.counters().identities for device in session.devices}
    return {address: sum(sum(one.runs.values()) for one in found) for address, found in counters.items()}


def tokens_per_second_here(path: Path, decoder: Decoder, prompt: Any) -> float:
    """Return how fast ONNX Runtime writes in this process, with numpy for the choice of tokens."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    local = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in local.get_inputs()][3:]
    outputs = ["logits", *(entry.name for entry in local.get_outputs() if entry.name != "logits")]
    rng, sizes = np.random.default_rng(SEED), decoder.sizes
    caches: list[Any] = [np.zeros((1, sizes.heads, 0, sizes.head_width), np.float32)] * len(names)
    tokens, length, began = prompt, prompt.shape[1], time.perf_counter()
    for _ in range(TOKENS):
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones((1, length), np.int64),
            "position_ids": np.arange(length - tokens.shape[1], length)[None],
            **dict(zip(names, caches, strict=True)),
        }
        logits, *caches = local.run(outputs, inputs)
        scores = logits[0, -1] / TEMPERATURE
        likely = np.argpartition(scores, -TOP_K)[-TOP_K:]
        chances = np.exp(scores[likely] - scores[likely].max())
        tokens = rng.choice(likely, size=(1, 1), p=chances / chances.sum())
        length += 1
    return TOKENS / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
