"""Random calls from a seed, with requests of valid structure and random values. `make fuzz` makes more of them."""

import pytest
from fuzzed_messages import FuzzedMessages, fuzz
from model_draft import Draft
from part import examples
from raw_client import VALUES, RawClient, attacked_daemon

CALLS = examples(500)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
@pytest.mark.parametrize("seed", range(2))
def test_calls_of_any_kind(seed: int, backend: str) -> None:
    """Each call ends, and the daemon is unharmed."""
    flags = ("--backend", backend, "--max-run-s", "2", "--session-bytes", "67108864", "--tensor-bytes", "16777216")
    messages = FuzzedMessages(seed)
    with attacked_daemon(*flags) as daemon, RawClient(daemon.address) as client:
        client.prepare(Draft.sum_of_input_and(VALUES).message)
        for _ in range(CALLS):
            fuzz(client, messages)
