"""Checks of the level `contract` that compare the claimed capabilities with the behaviour."""

from collections.abc import Sequence

import numpy as np

from nnrt_client.conformance.levels.check import NotOffered, expect_refusal, require
from nnrt_client.conformance.levels.streams import run_request
from nnrt_client.conformance.levels.subjects import prepared_subject, require_answer, subjects
from nnrt_client.conformance.target import Target, first_reason
from nnrt_hdi import wire
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.enums import DataType, PerformanceMode, Priority
from nnrt_hdi.errors import InvalidFile, InvalidParameter, OperationForbidden, Unsupported
from nnrt_hdi.part import Part

_UNKNOWN_FORMAT = "conformance.unknown"
# Number of rows with which no other check prepares a model.
_OTHER_ROWS = 7
# Tolerance of sums of 64 FLOAT32 products, relative to the largest element. FLOAT16 errs a hundred times as much.
_DIGITS = 4e-6


def takes_unknown_dimensions(target: Target) -> None:
    """Check that models run with any number of rows, or are refused with a reason without dynamic_input."""
    with target.session() as connection:
        tried = 0
        for subject in subjects(connection):
            dynamic = subject.dynamic
            reason = first_reason(connection.supported(dynamic.graph))
            if not target.info.capabilities.dynamic_input:
                require(reason, f"an unknown dimension of {subject.name!r} is supported without the capability for it")
                with expect_refusal("a model with an unknown dimension", Unsupported, InvalidParameter):
                    connection.prepare(dynamic.graph).close()
                continue
            if reason:
                continue
            tried += 1
            with connection.prepare(dynamic.graph) as prepared:
                for seed, rows in enumerate((3, 1, 8, 300, 3, 2)):
                    given = dynamic.question(seed, rows)
                    require_answer(dynamic, given, prepared.run([given]), f"with {rows} rows where any number may be")
        if not target.info.capabilities.dynamic_input:
            raise NotOffered("the device needs every dimension, and says so")
        require(tried, "it has the capability dynamic_input, and supports none of the small models with unknown rows")


def computes_in_float16(target: Target) -> None:
    """Check that enable_float16 gives an answer within FLOAT16's tolerance, or is refused without float16_precision."""
    _try_config(target, "float16_precision", [ModelConfig(enable_float16=True)])


def keeps_settings_apart(target: Target) -> None:
    """Check that a model prepared with enable_float16 has full precision when it is prepared again without it."""
    if not target.info.capabilities.float16_precision:
        raise NotOffered("the device has no float16_precision")
    with target.session() as connection:
        for subject in subjects(connection):
            if subject.graph.input_specs[0].data_type is not DataType.FLOAT32:
                continue
            subject = subject.with_rows(_OTHER_ROWS)
            given = subject.question(1, _OTHER_ROWS) / np.float32(3)
            wanted = subject.answer(given)
            for config in (ModelConfig(enable_float16=True), ModelConfig()):
                with connection.prepare(subject.graph, config) as prepared:
                    (output,) = prepared.run([given])
            off = float(np.abs(np.subtract(output, wanted, dtype=np.float64)).max())
            require(
                off <= _DIGITS * float(np.abs(wanted).max()),
                f"{subject.name!r} is off by {off:.2g} without enable_float16 when it was prepared with it before",
            )


def takes_performance_modes(target: Target) -> None:
    """Check that each performance mode gives the same answer, or is refused without the capability."""
    modes = [mode for mode in PerformanceMode if mode is not PerformanceMode.NONE]
    _try_config(target, "performance_mode", [ModelConfig(mode=mode) for mode in modes])


def takes_priorities(target: Target) -> None:
    """Check that each priority gives the same answer, or is refused without the capability."""
    priorities = [priority for priority in Priority if priority is not Priority.NONE]
    _try_config(target, "priority", [ModelConfig(priority=priority) for priority in priorities])


def _try_config(target: Target, capability: str, configs: Sequence[ModelConfig]) -> None:
    with target.session() as connection:
        subject = subjects(connection)[0]
        if not getattr(target.info.capabilities, capability):
            for config in configs:
                with expect_refusal(f"{config} without the capability {capability}", OperationForbidden):
                    connection.prepare(subject.graph, config).close()
            raise NotOffered(f"the device has no {capability}, and refuses what needs it")
        for config in configs:
            with connection.prepare(subject.graph, config) as prepared:
                # Sums of 64 products of small integers are exact in FLOAT16 too, up to 2048.
                given = np.sign(subject.question(1))
                require_answer(subject, given, prepared.run([given]), f"with {config}")


def exports_models(target: Target) -> None:
    """Check that the device exports and restores a model, or refuses both without the capability model_cache."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        with prepared:
            if not target.info.capabilities.model_cache:
                with expect_refusal("an export without the capability model_cache", Unsupported):
                    prepared.export()
                with expect_refusal(
                    "a cache without the capability model_cache", Unsupported, InvalidFile, OperationForbidden
                ):
                    connection.restore([Part.of(b"cache")]).close()
                raise NotOffered("the device exports no models, and says so")
            parts = prepared.export()
        with connection.restore(parts) as restored:
            given = subject.question(1)
            require_answer(subject, given, restored.run([given]), "when it is restored")


def profiles_runs(target: Target) -> None:
    """Check that a profiled run reports its operators' times, or is refused without profiling."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        with prepared:
            given = subject.question(1)
            request = run_request(prepared, [given], profile=True)
            if not target.info.capabilities.profiling:
                with expect_refusal("a profile without the capability profiling", Unsupported):
                    connection.call("PreparedModel.Run", request)
                raise NotOffered("the device doesn't profile runs, and says so")
            reply = connection.call("PreparedModel.Run", request)
            require_answer(subject, given, [wire.io_array(output) for output in reply.outputs], "when it is profiled")
            require(reply.operator_times, "a profiled run tells of no operator")
            for operator in reply.operator_times:
                require(operator.operator, "a profiled run names no operator for a part of its time")


def loads_programs(target: Target) -> None:
    """Check that the device refuses garbage in a program format that it claims, and every other format."""
    formats = target.info.capabilities.program_formats
    with target.session() as connection:
        with expect_refusal(f"a program of the format {_UNKNOWN_FORMAT!r}", Unsupported, InvalidParameter):
            connection.load_program(_UNKNOWN_FORMAT, [Part.of(b"no program")]).close()
        for name in formats:
            for garbage in (b"no program", b"\0" * 4096, bytes(range(256)) * 16):
                with expect_refusal(
                    f"{len(garbage)} bytes as a program of {name!r}", InvalidFile, Unsupported, InvalidParameter
                ):
                    connection.load_program(name, [Part.of(garbage)]).close()
