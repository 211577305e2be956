"""Command that computes the conformance kit's expected answers with the oracles: `make answers`."""

from pathlib import Path

from nnrt_client.conformance import Level, answers
from operators.answering import answers_of

PLACE = Path(answers.__file__).parent


def main() -> None:
    for level in Level:
        if made := list(answers_of(level)):
            file = PLACE / f"{level.value}.npz"
            file.write_bytes(answers.pack(made))
            print(f"{file.name}: {len(made)} answers, {file.stat().st_size / 2**10:.0f} KiB")


if __name__ == "__main__":
    main()
