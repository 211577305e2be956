"""Sequences: state that stays on the device, loops without the client, slots and survival.

    PYTHONPATH=tests:tests/onnx_import:examples/generate python benchmarks/sequences.py

The models are decoders of examples/generate with random weights, and a recurrent network as those that detect speech.
What they are compared with is ONNX Runtime in the client's process, with as many threads, which is given the same ONNX
file and keeps the state in arrays. All results must agree.
"""

import logging
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from decoder import Decoder, Sizes, random_weights
from delayed_link import delayed_link
from export import fixed, growing
from harness import Report, alternate, at_most, device_daemon, in_rounds, pair_cells
from numpy.typing import NDArray
from onnx_networks import in_process_session
from stateful import COMPARED_STEPS, SAMPLES, WIDTH, in_process, recurrent_network

from nnrt_client import Batching, ModelSession, Sequence, Settings, greedy, load

Array = NDArray[Any]

# Decoders whose step takes about 0.25 ms and 5 ms, and one in between.
SMALL = Sizes(tokens=512, width=128, heads=4, layers=2)
MIDDLE = Sizes(tokens=512, width=256, heads=4, layers=3)
LARGE = Sizes(tokens=1024, width=512, heads=8, layers=8)
TOKENS = 200
PROMPT = np.arange(1, 9)[None]
# Seconds in each direction of a link with a round trip of 20 ms and of one of 10 ms.
DELAY_S, SHORT_DELAY_S = 0.01, 0.005
QUEUED = 100
SLOTS, ROOM = 16, 128
COMMON_PROMPT = 512
GENERATIONS, GENERATED, CALLERS = 1000, 60, 4
# Across a network there is no local socket.
REMOTE = Settings(share_memory=False)


# ---- decoders


class HereDecoder:
    """Greedy generation with ONNX Runtime in this process."""

    def __init__(self, path: Path, sizes: Sizes, threads: int = 1) -> None:
        self._session = in_process_session(path, threads)
        self._names = [entry.name for entry in self._session.get_inputs()][3:]
        presents = [entry.name for entry in self._session.get_outputs() if entry.name != "logits"]
        self._outputs = ["logits", *presents]
        self._empty = np.zeros((1, sizes.heads, 0, sizes.head_width), np.float32)

    def generate(self, prompt: Array, count: int) -> Iterator[int]:
        """Yield tokens."""
        tokens, mask = prompt, np.ones_like(prompt)
        positions, caches = np.arange(prompt.shape[1])[None], [self._empty] * len(self._names)
        for _ in range(count):
            first = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions}
            logits, *caches = self._session.run(self._outputs, {**first, **dict(zip(self._names, caches, strict=True))})
            tokens = logits[:, -1:].argmax(-1)
            mask = np.concatenate([mask, np.ones_like(tokens)], 1)
            positions = positions[:, -1:] + 1
            yield int(tokens[0, 0])


def start_of(prompt: Array) -> dict[str, Array]:
    """Return the inputs of a growing decoder's first run."""
    return {
        "input_ids": prompt,
        "attention_mask": np.ones_like(prompt),
        "position_ids": np.arange(prompt.shape[1])[None],
    }


def by_runs(session: ModelSession, prompt: Array, count: int) -> Iterator[int]:
    """Generate tokens with a run for each; only the caches stay on the device."""
    inputs = start_of(prompt)
    with session.sequence() as sequence:
        for _ in range(count):
            tokens = sequence.run(inputs)["logits"][:, -1:].argmax(-1)
            inputs = {
                "input_ids": tokens,
                "attention_mask": np.concatenate([inputs["attention_mask"], np.ones_like(tokens)], 1),
                "position_ids": inputs["position_ids"][:, -1:] + 1,
            }
            yield int(tokens[0, 0])


def by_loop(session: ModelSession, glue: Any, prompt: Array, count: int) -> Iterator[int]:
    """Generate tokens with one loop."""
    with session.sequence() as sequence:
        for values in sequence.loop(start_of(prompt), glue=glue, deliver=["input_ids"], max_steps=count):
            yield int(values["input_ids"][0, 0])


@contextmanager
def growing_decoder(sizes: Sizes) -> Iterator[tuple[str, HereDecoder, Callable[..., ModelSession]]]:
    """Yield the address of a daemon, the decoder here, and a function that loads it from an address."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
        path = Path(folder) / "decoder.onnx"
        onnx.save(growing(Decoder(sizes, random_weights(sizes))), path)
        at, _ = resources.enter_context(
            device_daemon("127.0.0.1:0", "--backend", "onnxruntime", "--option", "threads=1")
        )

        def load_from(address: str, **how: Any) -> ModelSession:
            return resources.enter_context(load(path, address, cache=False, ways="program", **how))

        yield at, HereDecoder(path, sizes), load_from


def per_token_us(generate: Callable[[], Iterator[int]]) -> float:
    """Return the median time of a token, without the first ten."""
    times = []
    began = time.perf_counter()
    for _ in generate():
        now = time.perf_counter()
        times.append(now - began)
        began = now
    return statistics.median(times[10:]) * 1e6


def all_us(generate: Callable[[], Iterator[int]]) -> float:
    """Return the time of a generation by its tokens: those of a loop come several at a time."""
    began = time.perf_counter()
    count = len(list(generate()))
    return (time.perf_counter() - began) / count * 1e6


# ---- tables


def measure() -> list[Report]:
    return [_decoding(), _delayed(), _dependent(), _slots(), _memory(), _streaming(), _survival()]


def _decoding() -> Report:
    report = Report(
        "Decoding on one host",
        f"{TOKENS} tokens with growing caches, greedily, on the onnxruntime backend with one thread: time by token,"
        " in rounds that alternate with ONNX Runtime and numpy's arg-max in the client's process. A run by token, or"
        " one loop. ratio: device divided by in process, with quartiles.",
        ("decoder", "way", "in process µs", "µs", "ratio", "quartiles"),
    )
    for name, sizes in (("small", SMALL), ("large", LARGE)):
        with growing_decoder(sizes) as (at, here, load_from):
            session = load_from(at)
            glue = greedy(session)
            ways = {
                "runs": partial(by_runs, session, PROMPT, TOKENS),
                "loop": partial(by_loop, session, glue, PROMPT, TOKENS),
            }
            expected = list(here.generate(PROMPT, TOKENS))
            for way, generate in ways.items():
                assert list(generate()) == expected
                compared: dict[str, Callable[[], float]] = {
                    "here": partial(all_us, partial(here.generate, PROMPT, TOKENS)),
                    "there": partial(all_us, generate),
                }
                figures = in_rounds(compared, 7)
                report.add(name, way, *pair_cells(zip(figures["here"], figures["there"], strict=True)))
    return report


def _delayed() -> Report:
    report = Report(
        "Decoding across a link with a round trip of 20 ms",
        f"{TOKENS} tokens by one loop, over gRPC and a proxy that delays each direction by 10 ms. Tokens per second"
        " from the first token on, and of all, divided by those in process; the time until the first token less that in"
        " process, in round trips.",
        ("decoder", "tokens/s in process", "tokens/s", "ratio", "ratio of all", "first token, round trips"),
    )
    for name, sizes in (("small", SMALL), ("large", LARGE)):
        with growing_decoder(sizes) as (at, here, load_from), delayed_link(at, DELAY_S) as link:
            session = load_from(link, settings=REMOTE)
            glue = greedy(session)
            list(by_loop(session, glue, PROMPT, 5))  # Compiles the glue.
            rows = []
            for _ in range(at_most(5, 2)):
                first_here, all_here = _first_and_all(partial(here.generate, PROMPT, TOKENS))
                first, whole = _first_and_all(partial(by_loop, session, glue, PROMPT, TOKENS))
                rate_here, rate = TOKENS / (all_here - first_here), TOKENS / (whole - first)
                trips = (first - first_here) / (2 * DELAY_S)
                rows.append((rate / rate_here, rate_here, rate, all_here / whole, trips))
            ratio, rate_here, rate, of_all, _ = sorted(rows)[len(rows) // 2]
            trips = statistics.median(row[4] for row in rows)
            report.add(name, f"{rate_here:.0f}", f"{rate:.0f}", f"{ratio:.2f}", f"{of_all:.2f}", f"{trips:.2f}")
    return report


def _first_and_all(generate: Callable[[], Iterator[int]]) -> tuple[float, float]:
    began = time.perf_counter()
    tokens = generate()
    next(tokens)
    first = time.perf_counter() - began
    for _ in tokens:
        pass
    return first, time.perf_counter() - began


def _dependent() -> Report:
    report = Report(
        f"{QUEUED} dependent runs across a link with a round trip of 10 ms",
        "Steps of the recurrent network, one after the other, or sent at once as a queue, through the link and straight"
        " to the daemon. Round trips: what the link adds.",
        ("way", "ms without the link", "ms", "round trips"),
    )
    xs = [{"x": x} for x in np.random.default_rng(6).normal(size=(QUEUED, 1, 1, SAMPLES)).astype("f4")]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
        path = Path(folder) / "network.onnx"
        onnx.save(recurrent_network(), path)
        at, _ = resources.enter_context(device_daemon("127.0.0.1:0", "--backend", "onnxruntime"))
        link = resources.enter_context(delayed_link(at, SHORT_DELAY_S))
        near, far = (
            resources.enter_context(load(path, address, cache=False, settings=REMOTE)) for address in (at, link)
        )
        for way, make in (("a run at a time", _by_turns), ("a queue", _queued)):
            took = [statistics.median(_times_of(session, make, xs)) for session in (near, far)]
            trips = (took[1] - took[0]) / (2 * SHORT_DELAY_S)
            report.add(way, *(f"{seconds * 1e3:.0f}" for seconds in took), f"{trips:.1f}")
    return report


def _times_of(session: ModelSession, make: Callable[[Sequence, Any], object], xs: Any) -> list[float]:
    _, state = (output.name for output in session.outputs)
    times = []
    with session.sequence(states={state: "state"}) as sequence:
        for _ in range(at_most(5, 2)):
            sequence.write({"state": np.zeros((2, 1, WIDTH), np.float32)})
            began = time.perf_counter()
            make(sequence, xs)
            times.append(time.perf_counter() - began)
    return times


def _by_turns(sequence: Sequence, xs: Any) -> None:
    for x in xs:
        sequence.run(x)


def _queued(sequence: Sequence, xs: Any) -> None:
    for _ in sequence.queue(xs):
        pass


def _slots() -> Report:
    report = Report(
        f"{SLOTS} sequences at once",
        f"Each generates {TOKENS // 4} tokens by a loop, with caches of fixed room ({ROOM} tokens), on two threads."
        " Together: the daemon computes the rows of those that wait as one batch. ratio: tokens per second together"
        " divided by those one sequence after the other.",
        ("decoder", "backend", "one by one, tokens/s", "together, tokens/s", "ratio"),
    )
    for name, sizes in (("middle", MIDDLE), ("large", LARGE)):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
            path = Path(folder) / "decoder.onnx"
            onnx.save(fixed(Decoder(sizes, random_weights(sizes)), ROOM), path)
            at, _ = resources.enter_context(device_daemon("127.0.0.1:0", "--backend", "onnxruntime"))
            alone = resources.enter_context(load(path, at, cache=False))
            joined = resources.enter_context(load(path, at, cache=False, batching=Batching(SLOTS, 20_000)))
            expected: dict[int, list[int]] = {}
            one = min(_rate_of(alone, 1, expected) for _ in range(at_most(3, 1)))
            together = max(_rate_of(joined, SLOTS, {}) for _ in range(at_most(3, 1)))
            report.add(name, "onnxruntime", f"{one:.0f}", f"{together:.0f}", f"{together / one:.2f}")
    return report


def _rate_of(session: ModelSession, at_once: int, tokens: dict[int, list[int]]) -> float:
    """Return tokens per second of SLOTS generations, so many at once."""
    glue = greedy(session, mask=None, positions="positions")
    left = list(range(SLOTS))

    def work() -> None:
        while left:
            try:
                at = left.pop()
            except IndexError:
                return
            with session.sequence() as sequence:
                start = {"input_ids": np.array([[at + 1]]), "positions": np.array([0])}
                loop = sequence.loop(start, glue=glue, deliver=["input_ids"], max_steps=TOKENS // 4)
                tokens[at] = [int(values["input_ids"][0, 0]) for values in loop]

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return SLOTS * (TOKENS // 4) / (time.perf_counter() - began)


def _memory() -> Report:
    report = Report(
        f"Memory of {SLOTS} sequences with a common prompt of {COMMON_PROMPT} tokens",
        "Bytes that the daemon counts for the values of sequences: of one after its prompt, of all its forks, and"
        " of all after each has generated a token.",
        ("sequences", "MB", "of one"),
    )
    with growing_decoder(SMALL) as (at, _, load_from):
        session = load_from(at)
        prompt = np.arange(COMMON_PROMPT)[None] % SMALL.tokens
        with session.sequence() as first, ExitStack() as forks:
            first.run(start_of(prompt), outputs=[])
            one = _held_bytes(session)
            made = [forks.enter_context(first.fork()) for _ in range(SLOTS - 1)]
            common = _held_bytes(session)
            following = {
                "input_ids": np.array([[1]]),
                "attention_mask": np.ones((1, COMMON_PROMPT + 1), np.int64),
                "position_ids": np.array([[COMMON_PROMPT]]),
            }
            for sequence in made:
                sequence.run(following, outputs=[])
            parted = _held_bytes(session)
        for name, size_bytes in (("1", one), (f"{SLOTS}", common), (f"{SLOTS}, parted", parted)):
            report.add(name, f"{size_bytes / 1e6:.2f}", f"{size_bytes / one:.2f}")
    return report


def _held_bytes(session: ModelSession) -> int:
    load = session.device.counters().load
    assert load is not None
    return load.held_bytes["sequences"]


def _streaming() -> Report:
    report = Report(
        "Streaming, chunk by chunk",
        f"A recurrent network of {SAMPLES} samples and a state of 2 x 1 x {WIDTH}, as those that detect speech: p50 of"
        " a chunk, in rounds that alternate with ONNX Runtime in the client's process, one thread each.",
        ("way", "in process µs", "µs", "ratio", "quartiles"),
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
        path = Path(folder) / "network.onnx"
        onnx.save(recurrent_network(), path)
        daemon = device_daemon(f"unix:{folder}/device", "--backend", "onnxruntime", "--option", "threads=1")
        at, _ = resources.enter_context(daemon)
        session = resources.enter_context(load(path, at, cache=False))
        score, state = (output.name for output in session.outputs)
        sequence = resources.enter_context(session.sequence(states={state: "state"}))
        here = in_process(path)
        for x in np.random.default_rng(6).normal(size=(COMPARED_STEPS, 1, 1, SAMPLES)).astype("f4"):
            np.testing.assert_allclose(sequence.run({"x": x})[score], here(x)[0], rtol=1e-4)
        x = np.zeros((1, 1, SAMPLES), np.float32)
        report.add("a run by chunk", *pair_cells(alternate(partial(here, x), lambda: sequence.run({"x": x}))))
        chunks = [{"x": x}] * 32

        def queued() -> None:
            for _ in sequence.queue(chunks):
                pass

        def all_here() -> None:
            for _ in chunks:
                here(x)

        report.add("queues of 32 chunks", *pair_cells(alternate(all_here, queued, runs=5), scale=1 / 32))
    return report


def _survival() -> Report:
    report = Report(
        f"{GENERATIONS} generations while daemons are killed",
        f"Of {GENERATED} tokens each, {CALLERS} at a time, by loops of a pool of two daemons, of which one is killed"
        " each second and started again. A pause is the time between two tokens.",
        ("generations", "lost", "differing", "kills", "p50 of pauses ms", "p99 of longest pauses ms", "longest ms"),
    )
    count = at_most(GENERATIONS, 20)
    logging.getLogger("nnrt_client").setLevel(logging.ERROR)  # Each death would be a line.
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
        path = Path(folder) / "decoder.onnx"
        onnx.save(growing(Decoder(SMALL, random_weights(SMALL))), path)
        fleet = [Killed(f"unix:{folder}/{at}", resources) for at in range(2)]
        session = resources.enter_context(load(path, [one.address for one in fleet], cache=False, ways="program"))
        glue, here = greedy(session), HereDecoder(path, SMALL)
        prompts = [np.array([[at % SMALL.tokens, (7 * at) % SMALL.tokens]]) for at in range(count)]
        pauses: list[float] = []
        longest: list[float] = []
        given: dict[int, list[int]] = {}
        left = list(range(count))

        def work() -> None:
            while left:
                at = left.pop()
                began, found = time.perf_counter(), []
                given[at] = []
                for token in by_loop(session, glue, prompts[at], GENERATED):
                    given[at].append(token)
                    now = time.perf_counter()
                    found.append(now - began)
                    began = now
                pauses.extend(found)
                longest.append(max(found))

        ended = threading.Event()
        killer = threading.Thread(target=_kill_in_turn, args=(fleet, ended))
        threads = [threading.Thread(target=work) for _ in range(CALLERS)]
        for thread in (killer, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        ended.set()
        killer.join()
        wanted = {at: list(here.generate(prompt, GENERATED)) for at, prompt in enumerate(prompts)}
        lost = sum(len(given.get(at, ())) < GENERATED for at in range(count))
        differing = sum(given.get(at) != tokens for at, tokens in wanted.items())
        report.add(
            str(count),
            str(lost),
            str(differing),
            str(sum(one.kills for one in fleet)),
            f"{statistics.median(pauses) * 1e3:.2f}",
            f"{np.percentile(longest, 99) * 1e3:.0f}",
            f"{max(longest) * 1e3:.0f}",
        )
    return report


class Killed:
    """Daemon that is killed and started again at the same address."""

    def __init__(self, address: str, resources: ExitStack) -> None:
        self.address = address
        self.kills = 0
        self._running = ExitStack()
        resources.callback(self._running.close)
        self._start()

    def _start(self) -> None:
        options = ("--backend", "onnxruntime", "--option", "threads=1")
        self._running.enter_context(device_daemon(self.address, *options))

    def kill(self) -> None:
        """Kill the daemon, and start another one."""
        self.kills += 1
        self._running.close()
        self._start()


def _kill_in_turn(fleet: list[Killed], ended: threading.Event) -> None:
    while not ended.wait(1.0):
        fleet.sort(key=lambda one: one.kills)
        fleet[0].kill()


if __name__ == "__main__":
    for report in measure():
        report.show()
