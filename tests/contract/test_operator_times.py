"""What replies tell of operators, which a backend may have many of."""

from nnrt_hdi import wire
from nnrt_hdi.operator_times import Besides, OperatorTime
from nnrt_hdi.v2 import prepared_model_pb2


def sent(times: list[OperatorTime], message_bytes: int = 64 << 20) -> list[OperatorTime]:
    reply = prepared_model_pb2.RunReply()
    wire.add_operator_times(reply, times, message_bytes)
    return wire.operator_times(prepared_model_pb2.RunReply.FromString(reply.SerializeToString()))


def test_they_arrive_as_they_are() -> None:
    times = [OperatorTime("conv1", "CONV2D_FUSION", 0, 1000), OperatorTime("", "Softmax", 1000, 5)]
    assert sent(times) == times


def test_what_was_done_besides_arrives_as_that() -> None:
    times = [Besides("", "open", 0, 7), OperatorTime("", "Softmax", 7, 5)]
    assert [(type(one), one) for one in sent(times)] == [(type(one), one) for one in times]


def test_there_are_not_too_many() -> None:
    times = [OperatorTime(str(number), "Add", number, 1) for number in range(20_000)]
    assert sent(times) == times[:10_000]
    assert len(sent(times, message_bytes=64 << 10)) == 32


def test_names_are_short_and_times_none_that_no_message_holds() -> None:
    (time,) = sent([OperatorTime("\ud800" + "ä" * 10_000, "x" * 201, -5, -1)])
    assert len(time.name.encode()) <= 200
    assert len(time.operator.encode()) <= 200
    assert time[2:] == (0, 0)
