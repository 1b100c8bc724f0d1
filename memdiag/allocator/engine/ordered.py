"""Ordered sets of blocks (std::set in the allocator): search trees whose members are also linked in order.

The sets are treaps: search trees by (key, tie), and heaps by a random priority. They are about as shallow as balanced
trees, with less work per change, for ten free blocks and for fifty thousand. The head of a set is also a node: ``left``
is the root, ``succ`` the first and ``pred`` the last member (the head itself if the set is empty).
"""

from __future__ import annotations

from memdiag.allocator.engine.memory import NONE, Nodes
from memdiag.trace.compiled import lean_part


@lean_part
def _set_child(nodes: Nodes, parent: int, is_right: bool, child: int) -> None:
    if is_right:
        nodes[parent].right = child
    else:
        nodes[parent].left = child


@lean_part
def insert(nodes: Nodes, head: int, node: int) -> None:
    """Inserts ``node``, whose key and tie are set."""
    key, tie, priority = nodes[node].key, nodes[node].tie, nodes[node].priority
    parent, is_right, x = head, False, nodes[head].left
    before, after = head, head
    # The direction is random, so the processor would mispredict a branch: both children are read, and one is selected
    # without a branch.
    while x != NONE and nodes[x].priority > priority:
        is_smaller = (nodes[x].key < key) | ((nodes[x].key == key) & (nodes[x].tie < tie))
        before = x if is_smaller else before
        after = after if is_smaller else x
        left, right = nodes[x].left, nodes[x].right
        parent, is_right = x, is_smaller
        x = right if is_smaller else left
    _set_child(nodes, parent, is_right, node)
    nodes[node].parent = parent
    # The new member splits the subtree below it: smaller ones become its left subtree, larger ones its right one.
    low, low_is_right, high, high_is_right = node, False, node, True
    while x != NONE:
        if (nodes[x].key < key) | ((nodes[x].key == key) & (nodes[x].tie < tie)):
            _set_child(nodes, low, low_is_right, x)
            nodes[x].parent = low
            before, low, low_is_right = x, x, True
            x = nodes[x].right
        else:
            _set_child(nodes, high, high_is_right, x)
            nodes[x].parent = high
            after, high, high_is_right = x, x, False
            x = nodes[x].left
    _set_child(nodes, low, low_is_right, NONE)
    _set_child(nodes, high, high_is_right, NONE)
    nodes[node].pred, nodes[node].succ = before, after
    nodes[before].succ = node
    nodes[after].pred = node


@lean_part
def remove(nodes: Nodes, node: int) -> None:
    """Removes ``node`` from the set that it is in."""
    before, after = nodes[node].pred, nodes[node].succ
    nodes[before].succ = after
    nodes[after].pred = before
    low, high, parent = nodes[node].left, nodes[node].right, nodes[node].parent
    is_right = nodes[parent].left != node
    while low != NONE and high != NONE:
        if nodes[low].priority > nodes[high].priority:
            _set_child(nodes, parent, is_right, low)
            nodes[low].parent = parent
            parent, is_right = low, True
            low = nodes[low].right
        else:
            _set_child(nodes, parent, is_right, high)
            nodes[high].parent = parent
            parent, is_right = high, False
            high = nodes[high].left
    remaining = high if low == NONE else low
    _set_child(nodes, parent, is_right, remaining)
    if remaining != NONE:
        nodes[remaining].parent = parent


@lean_part
def lower_bound(nodes: Nodes, head: int, key: int) -> int:
    """Returns the first member whose key is at least ``key``; the head: there is none."""
    found, x = head, nodes[head].left
    while x != NONE:
        is_smaller = nodes[x].key < key
        found = found if is_smaller else x
        left, right = nodes[x].left, nodes[x].right
        x = right if is_smaller else left
    return found


@lean_part
def stays(nodes: Nodes, head: int, node: int, key: int, tie: int) -> bool:
    """Returns whether ``node`` could have this key and tie without changing its position in its set."""
    before, after = nodes[node].pred, nodes[node].succ
    return (before == head or nodes[before].key < key or (nodes[before].key == key and nodes[before].tie < tie)) and (
        after == head or nodes[after].key > key or (nodes[after].key == key and nodes[after].tie > tie)
    )
