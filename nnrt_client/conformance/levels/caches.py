"""Level `caches`: a compiled model is restored exactly, or refused."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice

import numpy as np

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.levels.check import Check, NotOffered, expect_refusal, make_checks, require
from nnrt_client.conformance.levels.subjects import (
    Subject,
    models_of_equal_size,
    prepared_subject,
    require_answer,
    subjects,
)
from nnrt_client.conformance.outcome import quote_error
from nnrt_client.conformance.target import Connection, Target
from nnrt_hdi.backend import ModelConfig, Origin
from nnrt_hdi.errors import (
    InvalidFile,
    InvalidParameter,
    NnrtError,
    OperationForbidden,
    OutOfMemory,
    UnavailableDevice,
    Unsupported,
)
from nnrt_hdi.part import Part

_REFUSALS = (InvalidFile, InvalidParameter, OperationForbidden, OutOfMemory, Unsupported)
# Number of bytes of a part in which each bit is flipped: the first ones, which are headers, and others spread evenly.
_FIRST_PLACES, _PLACES = 8, 24
_BITS = 8
_LENGTHS = 12
# Number of models of each kind that differ only in their constants.
_OF_EQUAL_SIZE = 3
# Backends recognise parts by their first bytes; none may accept these.
_GARBAGE = (
    b"",
    b"\0",
    b"\0" * 4096,
    b"\xff" * 4096,
    bytes(range(256)) * 64,
    b"\x7fELF" + b"\2\1\1" + b"\0" * 505,
    b"PK\3\4" + b"\0" * 508,
    b"\x80\4\x95" + b"." * 509,
    b'{"kind": "model", "parts": []}',
    b"\x08\x07\x12\x07pytorch" + b"\0" * 500,
)


def restores_what_it_exported(target: Target) -> None:
    """Check that exported models restore in another session, repeatedly, with the same answers and signature."""
    for subject, parts in _export_models(target):
        for _ in range(2):
            with target.session() as connection, connection.restore(parts) as restored:
                require(restored.handle.origin is Origin.RESTORED, f"it is said to be {restored.handle.origin.value}")
                shapes = [spec.shape for spec in (*restored.inputs, *restored.outputs)]
                wanted = [spec.shape for spec in (*subject.graph.input_specs, *subject.graph.output_specs)]
                require(shapes == wanted, f"{subject.name!r} has the shapes {shapes} when it is restored, not {wanted}")
                names = [spec.name for spec in (*restored.inputs, *restored.outputs)]
                require(names == ["x", "y"], f"{subject.name!r} has the names {names} when it is restored, not x and y")
                for seed in range(3):
                    given = subject.question(seed)
                    require_answer(subject, given, restored.run([given]), "when it is restored")


def exports_what_it_restored(target: Target) -> None:
    """Check that a restored model can be exported before and after a run, and that the last export restores."""
    subject, parts = next(_export_models(target))
    with target.session() as connection, connection.restore(parts) as restored:
        restored.export()
        restored.run([subject.question(2)])
        again = restored.export()
    with target.session() as connection, connection.restore(again) as twice:
        given = subject.question(1)
        require_answer(subject, given, twice.run([given]), "when it is restored from the export of a restored one")


def keeps_constants_of_equal_size_apart(target: Target) -> None:
    """Check that models that differ only in their constants stay distinct when loaded and restored together."""
    _require_offered(target)
    with target.session() as connection, ExitStack() as stack:
        models = models_of_equal_size(connection, _OF_EQUAL_SIZE)
        living = [stack.enter_context(connection.prepare(subject.graph)) for subject in models]
        exported = [prepared.export() for prepared in living]
        other = stack.enter_context(target.session())
        # In reverse order, so that each model gets another position.
        restored = [stack.enter_context(other.restore(parts)) for parts in exported[::-1]][::-1]
        for turn in range(2):
            for subject, prepared, again in zip(models, living, restored, strict=True):
                given = subject.question(turn)
                require_answer(subject, given, prepared.run([given]), "beside models of equal size")
                when = "when it is restored beside models of equal size"
                require_answer(subject, given, again.run([given]), when)


def restores_models_with_unknown_dimensions(target: Target) -> None:
    """Check that dimensions that are unknown at compile time stay unknown in the restored model."""
    if not target.info.capabilities.dynamic_input:
        raise NotOffered("the device needs every dimension")
    with target.session() as connection:
        _require_offered(target)
        subject = subjects(connection)[0].dynamic
        with connection.prepare(subject.graph) as prepared:
            parts = prepared.export()
        with connection.restore(parts) as restored:
            for seed, rows in enumerate((3, 1, 5)):
                given = subject.question(seed, rows)
                require_answer(subject, given, restored.run([given]), f"with {rows} rows when it is restored")


def restores_how_it_was_compiled(target: Target) -> None:
    """Check that a restored model keeps its compile options."""
    if not target.info.capabilities.float16_precision:
        raise NotOffered("the device has no float16_precision")
    with target.session() as connection:
        _require_offered(target)
        subject, prepared = prepared_subject(connection, ModelConfig(enable_float16=True))
        with prepared:
            parts = prepared.export()
            # Thirds give different answers in FLOAT16 and in FLOAT32.
            given = subject.question(1) / subject.graph.input_specs[0].numpy_dtype.type(3)
            wanted = prepared.run([given])
        with connection.restore(parts) as restored:
            same = np.array_equal(restored.run([given])[0], wanted[0])
            require(same, "a model compiled with enable_float16 has another answer when it is restored")


def refuses_flipped_bits(target: Target) -> None:
    """Check that a cache with any flipped bit is refused."""
    for subject, parts in islice(_export_models(target), 2):
        with target.session() as connection:
            for number, part in enumerate(parts):
                for place in _places(part.size_bytes):
                    for bit in range(_BITS):
                        turned = bytearray(part.data)
                        turned[place] ^= 1 << bit
                        what = (
                            f"bit {bit} of byte {place} of {part.size_bytes}, part {number} of {subject.name!r}, turned"
                        )
                        _require_refused(connection, _with_part(parts, number, turned), what)
            _require_restored(connection, subject, parts)


def refuses_other_lengths(target: Target) -> None:
    """Check that a truncated or extended part is refused."""
    subject, parts = next(_export_models(target))
    with target.session() as connection:
        for number, part in enumerate(parts):
            size = part.size_bytes
            for length in sorted({0, 1, size - 1, *(size * step // _LENGTHS for step in range(_LENGTHS))} - {size, -1}):
                what = f"part {number} of {subject.name!r} with {length} of its {size} bytes"
                _require_refused(connection, _with_part(parts, number, part.data[:length]), what)
            for more in (b"\0", bytes(part.data)):
                what = f"part {number} of {subject.name!r} with {len(more)} bytes more than its {size}"
                _require_refused(connection, _with_part(parts, number, bytes(part.data) + more), what)
        _require_restored(connection, subject, parts)


def refuses_other_parts(target: Target) -> None:
    """Check that reordered, missing, duplicated and mixed parts are refused."""
    models = list(islice(_export_models(target), 2))
    subject, parts = models[0]
    with target.session() as connection:
        wrong: dict[str, Sequence[Part]] = {"a part twice": [*parts, parts[-1]]}
        if len(parts) > 1:
            wrong["the last part missing"] = parts[:-1]
            wrong["the first part missing"] = parts[1:]
            if parts[0] != parts[1]:
                wrong["two parts exchanged"] = [parts[1], parts[0], *parts[2:]]
        for _, others in models[1:]:
            for number in range(min(len(parts), len(others))) if len(parts) > 1 else ():
                if others[number] != parts[number]:
                    wrong[f"part {number} of another model"] = _with_part(parts, number, others[number].data)
            wrong["the parts of another model behind its own"] = [*parts, *others]
        for what, given in wrong.items():
            _require_refused(connection, given, f"{subject.name!r} with {what}")
        _require_restored(connection, subject, parts)


def refuses_garbage(target: Target) -> None:
    """Check that bytes that are no cache are refused."""
    with target.session() as connection:
        _require_offered(target)
        for garbage in _GARBAGE:
            for count in (1, 2, 100):
                what = f"{count} parts of {len(garbage)} bytes that begin with {garbage[:8]!r}"
                _require_refused(connection, [Part.of(garbage)] * count, what)
        with expect_refusal("a cache of no part", *_REFUSALS):
            connection.restore([]).close()
        subject, prepared = prepared_subject(connection)
        with prepared:
            given = subject.question(1)
            require_answer(subject, given, prepared.run([given]), "after garbage was refused")


def _export_models(target: Target) -> Iterator[tuple[Subject, list[Part]]]:
    """Yield small models with their exports."""
    _require_offered(target)
    with target.session() as connection:
        exported = []
        for subject in subjects(connection):
            with connection.prepare(subject.graph) as prepared:
                exported.append((subject, prepared.export()))
    yield from exported


def _require_offered(target: Target) -> None:
    if not target.info.capabilities.model_cache:
        raise NotOffered("the device exports no models")


def _places(size: int) -> list[int]:
    """Return byte positions in a part of this size."""
    spread = np.linspace(0, size - 1, _PLACES).astype(int) if size else ()
    return sorted({*range(min(size, _FIRST_PLACES)), *map(int, spread)})


def _with_part(parts: Sequence[Part], number: int, data: bytes | bytearray | memoryview) -> list[Part]:
    return [*parts[:number], Part.of(data), *parts[number + 1 :]]


def _require_refused(connection: Connection, parts: Sequence[Part], what: str) -> None:
    """Raise Breach unless the device refuses these parts as a cache with one of _REFUSALS."""
    try:
        connection.restore(parts).close()
    except _REFUSALS:
        return
    except UnavailableDevice as error:
        if not connection.session.is_alive:
            raise
        require(False, f"a cache with {what} has the device fail: {quote_error(error)}; INVALID_FILE is right")
    except NnrtError as error:
        require(False, f"a cache with {what} is refused with {quote_error(error)}; INVALID_FILE is right")
    else:
        require(False, f"a cache with {what} is taken; it is to be refused with INVALID_FILE")


def _require_restored(connection: Connection, subject: Subject, parts: Sequence[Part]) -> None:
    with connection.restore(parts) as restored:
        given = subject.question(1)
        require_answer(subject, given, restored.run([given]), "when it is restored after wrong ones were refused")


def checks() -> list[Check]:
    """Return the checks of the level."""
    return make_checks(
        Level.CACHES,
        restores_what_it_exported,
        exports_what_it_restored,
        keeps_constants_of_equal_size_apart,
        restores_models_with_unknown_dimensions,
        restores_how_it_was_compiled,
        refuses_flipped_bits,
        refuses_other_lengths,
        refuses_other_parts,
        refuses_garbage,
    )
