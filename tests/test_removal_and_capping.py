"""Between rounds: which items leave the lists, which are dropped or biased, and who moves up."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.core import grid
from beam_dp.core.blocks import ItemBlock, UserBlock
from beam_dp.core.capping import cap_degrees
from beam_dp.core.keys import Keys
from beam_dp.core.removal import FOUND, Biasing, item_status, remove_found

NUM_ITEMS = 10
lists_of_items = st.lists(st.lists(st.integers(0, NUM_ITEMS - 1), unique=True), max_size=10)
statuses = st.lists(st.sampled_from([FOUND, 0.0, 0.25, 1.0]), min_size=NUM_ITEMS, max_size=NUM_ITEMS).map(
    np.array
)


def block_of(lists) -> UserBlock:
    return UserBlock(
        shard=0,
        offsets=np.cumsum([0, *map(len, lists)]).astype(np.int64),
        items=np.array([item for one in lists for item in one], np.int32),
        keys=Keys.from_bytes([b"%d" % item for item in range(NUM_ITEMS)]),
        slices=np.array([0, NUM_ITEMS]),
    )


def lists_in(block: UserBlock) -> list[list[int]]:
    return [part.tolist() for part in np.split(block.items, block.offsets[1:-1])] if block.num_users else []


def items_with(noisy, found, weight=1.0) -> ItemBlock:
    noisy = np.asarray(noisy, np.float64)
    return ItemBlock(
        shard=0,
        keys=Keys.from_bytes([b"%d" % item for item in range(len(noisy))]),
        askers=(),
        rows=(),
        weight=grid.round_down(np.full(len(noisy), weight)),
        noisy=grid.nearest(noisy),
        found=np.asarray(found, np.bool_),
    )


# --- capping ---


@settings(max_examples=200, deadline=None)
@given(lists_of_items, st.integers(1, 12))
def test_the_cap_keeps_each_users_first_items(lists, cap):
    capped = cap_degrees(block_of(lists), cap)
    assert lists_in(capped) == [one[:cap] for one in lists]
    assert (capped.items.dtype, capped.offsets.dtype) == (np.int32, np.int64)


@settings(max_examples=100, deadline=None)
@given(lists_of_items, st.integers(1, 12), st.integers(1, 12))
def test_caps_compose_to_the_smaller(lists, one, other):
    block = block_of(lists)
    both = cap_degrees(cap_degrees(block, one), other)
    assert lists_in(both) == lists_in(cap_degrees(block, min(one, other)))


def test_the_cap_does_not_change_its_input_and_holds_its_own_edges():
    block = block_of([[0, 1, 2], [3, 4]])
    capped = cap_degrees(block, 1)
    assert lists_in(block) == [[0, 1, 2], [3, 4]]
    assert not np.shares_memory(capped.items, block.items)
    assert len(capped.items) == 2


# --- removal ---


@settings(max_examples=300, deadline=None)
@given(lists_of_items, statuses)
def test_found_items_leave_all_lists_and_nothing_else_does(lists, status):
    left = remove_found(block_of(lists), status)
    assert lists_in(left) == [[item for item in one if status[item] != FOUND] for one in lists]
    assert left.num_users == len(lists)  # users without items stay, in their place


@settings(max_examples=300, deadline=None)
@given(lists_of_items, statuses)
def test_the_rest_gets_its_bias(lists, status):
    left = remove_found(block_of(lists), status)
    listed = {item for one in lists for item in one if status[item] != FOUND}
    if left.bias is None:
        assert all(status[item] == 1.0 for item in listed)
    else:
        assert all(left.bias[item] == status[item] for item in listed)
        assert ((left.bias >= 0) & (left.bias <= 1)).all()
        assert any(status[item] != 1.0 for item in listed)


@settings(max_examples=300, deadline=None)
@given(lists_of_items, statuses, st.integers(1, 5))
def test_the_next_in_line_move_up_for_found_items_but_not_for_dropped_ones(lists, status, cap):
    """The trap of specification section 4: the slot of a dropped item is not refilled."""
    capped = cap_degrees(remove_found(block_of(lists), status), cap)
    assert lists_in(capped) == [[item for item in one if status[item] != FOUND][:cap] for one in lists]
    for one in lists_in(capped):
        assert len([item for item in one if status[item] > 0]) <= cap


def test_removing_twice_is_removing_once():
    block = block_of([[0, 1, 2], [2, 3]])
    status = np.full(NUM_ITEMS, 1.0)
    status[2] = FOUND
    once = remove_found(block, status)
    assert lists_in(remove_found(once, status)) == lists_in(once) == [[0, 1], [3]]


# --- statuses ---


def test_without_biasing_items_are_found_or_plain():
    assert item_status(items_with([9, 1, -3], [True, False, False]), None).tolist() == [FOUND, 1.0, 1.0]


BIASING = Biasing(next_threshold=4.0, lower_margin=1.0, upper_margin=3.0)


@pytest.mark.parametrize(
    ("noisy", "expected"),
    [
        (-5.0, 0.0),
        (0.9999, 0.0),
        (1.0, 1.0),  # the upper bound just reaches the next threshold
        (5.0, 1.0),
        (6.0, 0.8),
        (9.0, 0.5),
        (41.0, 0.1),
    ],
)
def test_statuses_are_those_of_mad_algorithm_5(noisy, expected):
    assert item_status(items_with([noisy], [False]), BIASING)[0] == pytest.approx(expected, rel=1e-12)


def test_a_found_item_is_neither_dropped_nor_biased():
    """If the second threshold is the higher one, a found item can look hopeless for it."""
    assert item_status(items_with([0.5, 41.0], [True, True]), BIASING).tolist() == [FOUND, FOUND]


def test_an_item_without_weight_is_dropped():
    items = items_with([0.0], [False], weight=0.0)
    items.noisy[:] = -grid.SATURATION
    assert item_status(items, BIASING).tolist() == [0.0]


@settings(max_examples=300)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=10),
    st.floats(1.0, 1e5),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
)
def test_biases_are_shares_and_fall_with_the_weight(noisy, threshold, lower, upper):
    noisy = sorted(noisy)
    biasing = Biasing(next_threshold=threshold, lower_margin=lower, upper_margin=upper)
    status = item_status(items_with(noisy, [False] * len(noisy)), biasing)
    assert ((status >= 0) & (status <= 1)).all()
    kept = status[status > 0]
    assert (np.diff(kept) <= 0).all()
    for value, one in zip(noisy, status, strict=True):
        if abs(value + upper - threshold) > 1e-6 * (1 + abs(value) + upper):
            assert (one == 0) == (value + upper < threshold)
        if one > 0:
            assert one == pytest.approx(
                min(1, threshold / max(value - lower, 1e-300)) if value > lower else 1, rel=1e-6
            )


@pytest.mark.parametrize("missing", ["noisy", "found"])
def test_statuses_need_noise_first(missing):
    items = items_with([1.0], [False])
    without = ItemBlock(
        shard=0,
        keys=items.keys,
        askers=(),
        rows=(),
        weight=items.weight,
        noisy=None if missing == "noisy" else items.noisy,
        found=None if missing == "found" else items.found,
    )
    with pytest.raises(ValueError) as error:
        item_status(without, None)
    assert str(error.value) == "items must have been through noise and threshold before any can be removed"


def test_biasing_is_immutable_and_keyword_only():
    with pytest.raises(TypeError):
        Biasing(1.0, 1.0, 1.0)
    with pytest.raises(AttributeError):
        BIASING.next_threshold = math.nan
