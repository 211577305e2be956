"""Groups of nodes: of one kind, without cycles between them, and none that could be larger."""

from hypothesis import given
from hypothesis import strategies as st

from nnrt_client.model_session.partition.grouping import group_nodes


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[set[int]], list[bool | None]]:
    """Nodes with those that each follows, and their kinds; nobody follows one without a kind."""
    count = draw(st.integers(1, 14))
    kinds = draw(st.lists(st.sampled_from([True, True, False, False, None]), min_size=count, max_size=count))
    before: list[set[int]] = []
    for node, kind in enumerate(kinds):
        earlier = [one for one in range(node) if kinds[one] is not None] if kind is not None else []
        before.append(draw(st.sets(st.sampled_from(earlier), max_size=3)) if earlier else set())
    return before, kinds


def has_cycle(groups: list[list[int]], before: list[set[int]]) -> bool:
    """By taking away what waits for nothing, until nothing is left, or nothing can be taken away."""
    group_of = {node: at for at, nodes in enumerate(groups) for node in nodes}
    waits = {at: {group_of[one] for node in nodes for one in before[node]} - {at} for at, nodes in enumerate(groups)}
    while waits:
        ready = {at for at, others in waits.items() if not others & waits.keys()}
        if not ready:
            return True
        waits = {at: others for at, others in waits.items() if at not in ready}
    return False


@given(graphs())
def test_groups(graph: tuple[list[set[int]], list[bool | None]]) -> None:
    before, kinds = graph
    groups = group_nodes(before, kinds)
    assert sorted(node for nodes in groups for node in nodes) == [
        at for at, kind in enumerate(kinds) if kind is not None
    ]
    assert all(len({kinds[node] for node in nodes}) == 1 for nodes in groups)
    assert not has_cycle(groups, before)
    done: set[int] = set()
    for nodes in groups:
        assert nodes == sorted(nodes)
        done.update(nodes)
        assert all(before[node] <= done for node in nodes), "a group runs before what it waits for"


@given(graphs())
def test_they_can_not_grow(graph: tuple[list[set[int]], list[bool | None]]) -> None:
    """Any two neighbours of one kind would wait for each other, if they were one."""
    before, kinds = graph
    groups = group_nodes(before, kinds)
    for at, first in enumerate(groups):
        for second in groups[at + 1 :]:
            are_neighbours = any(before[node] & set(first) for node in second)
            if are_neighbours and kinds[first[0]] == kinds[second[0]]:
                others = [nodes for nodes in groups if nodes not in (first, second)]
                assert has_cycle([*others, first + second], before)


def test_neighbours_that_wait_for_a_third() -> None:
    """0 and 2 are of one kind; 2 waits for 1 too, which waits for nobody: all of 0 and 2 can be one group."""
    assert group_nodes([set(), set(), {0, 1}], [True, False, True]) == [[1], [0, 2]]


def test_a_diamond() -> None:
    """0 gives to 1 and 2, and 3 takes of both; 2 is of the other kind, so that 3 can't be with 0."""
    assert group_nodes([set(), {0}, {0}, {1, 2}], [True, True, False, True]) == [[0, 1], [2], [3]]
