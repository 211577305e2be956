"""Grouping of a graph's nodes into the largest groups of one kind that don't depend on themselves.

A path that leaves a group and comes back would be a cycle: the group would need its own results. The first pass counts,
for each node, the most changes of kind on any path to it. Between two nodes of the same kind and count no path leads
through the other kind, so connected ones form a group. The second pass joins two neighbouring groups of one kind
wherever no other path leads from one to the other.
"""

from collections.abc import Collection, Sequence

# Kind of each node: True, False, or None for a node in no group.
Kinds = Sequence[bool | None]


def group_nodes(before: Sequence[Collection[int]], kinds: Kinds) -> list[list[int]]:
    """Return the groups in an order in which they can run, each with its nodes in ascending order.

    `before` has the nodes that each node follows, all of which have smaller numbers and a kind. If two joins exclude
    each other, groups of the kind True are joined first.
    """
    groups = _join(_connect(before, kinds), before, kinds)
    return _in_order(groups, before)


def _connect(before: Sequence[Collection[int]], kinds: Kinds) -> list[int]:
    """Form groups of connected nodes of one kind and count, and return for each node the smallest node of its group."""
    changes = [0] * len(before)
    leader = list(range(len(before)))
    for node, earlier in enumerate(before):
        changes[node] = max((changes[one] + (kinds[one] != kinds[node]) for one in earlier), default=0)
        for one in earlier:
            if kinds[one] == kinds[node] and changes[one] == changes[node]:
                first, second = sorted((_leader(leader, one), _leader(leader, node)))
                leader[second] = first
    return [_leader(leader, node) for node in range(len(before))]


def _leader(leader: list[int], node: int) -> int:
    while leader[node] != node:
        leader[node] = leader[leader[node]]
        node = leader[node]
    return node


def _join(groups: list[int], before: Sequence[Collection[int]], kinds: Kinds) -> dict[int, list[int]]:
    """Join neighbours of one kind until no two can be joined any more, and return the nodes of each group."""
    nodes: dict[int, list[int]] = {}
    for node, group in enumerate(groups):
        if kinds[node] is not None:
            nodes.setdefault(group, []).append(node)
    after: dict[int, set[int]] = {group: set() for group in nodes}
    for node, earlier in enumerate(before):
        for one in earlier:
            if groups[one] != groups[node]:
                after[groups[one]].add(groups[node])
    for kind in (True, False):
        while pair := _find_neighbours(after, [group for group in nodes if kinds[group] is kind]):
            group, other = pair
            nodes[group] = sorted(nodes[group] + nodes.pop(other))
            after[group] = (after[group] | after.pop(other)) - {other}
            for following in after.values():
                if other in following:
                    following.remove(other)
                    following.add(group)
    return nodes


def _find_neighbours(after: dict[int, set[int]], groups: list[int]) -> tuple[int, int] | None:
    """Return two of these groups that can be joined, because the second follows the first only directly; or None."""
    for group in groups:
        for other in sorted(after[group].intersection(groups)):
            if not _has_path(after, after[group] - {other}, other):
                return group, other
    return None


def _has_path(after: dict[int, set[int]], starts: Collection[int], end: int) -> bool:
    """Return whether a path leads from one of the groups `starts` to the group `end`."""
    seen, pending = set(starts), list(starts)
    while pending:
        for following in after[pending.pop()]:
            if following == end:
                return True
            if following not in seen:
                seen.add(following)
                pending.append(following)
    return False


def _in_order(groups: dict[int, list[int]], before: Sequence[Collection[int]]) -> list[list[int]]:
    group_of = {node: group for group, nodes in groups.items() for node in nodes}
    waits = {
        group: {group_of[one] for node in nodes for one in before[node]} - {group} for group, nodes in groups.items()
    }
    order: list[list[int]] = []
    done: set[int] = set()
    while len(order) < len(groups):
        ready = [group for group in groups if group not in done and waits[group] <= done]
        assert ready, "groups wait for each other"
        order += [groups[group] for group in ready]
        done.update(ready)
    return order
