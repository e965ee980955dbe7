import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import pipeline_dp_select, synthetic
from benchmarks.numpy_mad import capped_pairs, mad_weights, numpy_mad
from benchmarks.synthetic import pairs, write_parquet, write_tsv, zipf_sets

SMALL = {"num_users": 2_000, "mean_degree": 30.0, "num_items": 5_000, "exponent": 1.1}

# --- Synthetic data ---


def test_synthetic_sets_have_the_size_asked_for():
    offsets, items, num_items = zipf_sets(**SMALL)
    degrees = np.diff(offsets)
    assert len(degrees) == 2_000
    assert degrees.mean() == pytest.approx(30, rel=0.02)
    assert degrees.std() > 10
    assert num_items == 5_000
    assert items.max() < num_items


def test_synthetic_items_are_distinct_and_long_tailed():
    offsets, items, num_items = zipf_sets(**SMALL)
    users = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    assert len(np.unique(users * num_items + items)) == len(items)
    held = np.sort(np.bincount(items, minlength=num_items))[::-1]
    assert held[0] > 0.9 * 2_000
    assert np.median(held) < 10


def test_synthetic_data_depends_on_the_seed_only():
    first, again, other = zipf_sets(**SMALL), zipf_sets(**SMALL), zipf_sets(**SMALL, seed=1)
    np.testing.assert_array_equal(first.items, again.items)
    assert len(first.items) != len(other.items) or (first.items != other.items).any()
    np.testing.assert_array_equal(pairs(first, seed=1), pairs(again, seed=1))


def test_a_user_wants_half_of_the_items_at_most():
    sets = zipf_sets(num_users=50, mean_degree=100.0, num_items=20, exponent=1.0)
    assert np.diff(sets.offsets).mean() == pytest.approx(10, rel=0.1)


def test_both_files_hold_every_pair_in_one_order(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "ROW_GROUP", 25_000)
    users, items = pairs(zipf_sets(**SMALL))
    write_tsv(tmp_path / "pairs.tsv", users, items)
    write_parquet(tmp_path / "pairs.parquet", users, items)
    expected = [(f"u{user}", f"i{item}") for user, item in zip(users.tolist(), items.tolist(), strict=True)]
    lines = (tmp_path / "pairs.tsv").read_text().splitlines()
    assert [tuple(line.split("\t")) for line in lines] == expected
    parquet = pq.ParquetFile(tmp_path / "pairs.parquet")
    assert parquet.metadata.num_row_groups == -(-len(users) // 25_000)
    columns = parquet.read().to_pydict()
    assert list(zip(columns["user"], columns["item"], strict=True)) == expected


def test_synthetic_command_refuses_unknown_endings(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["synthetic", str(tmp_path / "pairs.csv")])
    with pytest.raises(SystemExit):
        synthetic.main()
    assert "output must end in .parquet or .tsv, got pairs.csv" in capsys.readouterr().err


# --- MAD in NumPy ---


def algorithm_2_word_for_word(sets, tau, d_max, num_items):
    """MAD (ICML) Algorithm 2, unbiased, line by line, with line 7's correction."""
    w_init, reroute, weights = np.zeros(num_items), np.zeros(num_items), np.zeros(num_items)
    alpha = 1 - 1 / (2 * np.sqrt(d_max))
    adaptive = [own for own in sets if 1 <= len(own) <= d_max]
    for own in adaptive:
        for item in own:
            w_init[item] += 1 / len(own)
    ratio = np.array([max(0.0, (w - tau) / w) if w else 0.0 for w in w_init])
    for own in adaptive:
        excess = sum(ratio[item] for item in own) / len(own)
        for item in own:
            reroute[item] += alpha * excess / d_max
    weights += np.minimum(w_init, tau) + reroute
    for own in adaptive:
        for item in own:
            weights[item] += 1 / np.sqrt(len(own)) - 1 / len(own)
    for own in sets:
        if len(own) > d_max:
            for item in own:
                weights[item] += 1 / np.sqrt(len(own))
    return weights


@pytest.mark.parametrize("d_max", [1, 4, 10])
def test_mad_weights_agree_with_the_algorithm_as_printed(d_max):
    rng = np.random.default_rng(7)
    sets = [rng.choice(12, size=rng.integers(1, 8), replace=False) for _ in range(60)]
    expected = algorithm_2_word_for_word(sets, tau=1.5, d_max=d_max, num_items=12)
    weights = mad_weights(np.concatenate(sets), np.array([len(own) for own in sets]), tau=1.5, d_max=d_max)
    np.testing.assert_allclose(weights, expected, rtol=1e-12)


def test_capping_drops_duplicates_and_keeps_small_sets():
    users = np.array([5, 1, 5, 1, 5, 9, 5, 5])
    items = np.array([0, 3, 1, 3, 2, 7, 3, 0])
    kept, degrees = capped_pairs(users, items, 3, np.random.default_rng(0))
    assert degrees.tolist() == [1, 3, 1]  # users 1, 5 and 9
    assert kept[0] == 3
    assert len(set(kept[1:4])) == 3 and set(kept[1:4]) <= {0, 1, 2, 3}
    assert kept[4] == 7


def test_capping_samples_uniformly():
    # 20,000 users of 6 items, 2 kept. False alarm 10^-6 for all 6 items together (5.3 standard deviations).
    users, items = np.divmod(np.arange(120_000), 6)
    kept, degrees = capped_pairs(users, items, 2, np.random.default_rng(1))
    assert (degrees == 2).all()
    assert np.abs(np.bincount(kept) / 20_000 - 1 / 3).max() < 5.3 * np.sqrt(2 / 9 / 20_000)


def test_mad_reproduces_the_example_of_appendix_c2():
    """15,000 users with item 1000 and two of 1,000 light ones, each light item held by exactly 30 users.

    Published: 610. One run's standard deviation is at most 15.5, so the mean of 10 has a false alarm of 10^-6
    at 24; a wrong rerouting (none at all would give 367) is found.
    """
    user = np.arange(15_000)
    first = user % 1000
    second = (first + user // 1000 + 1) % 1000
    items = np.column_stack([first, second, np.full(15_000, 1000)]).ravel()
    counts = [
        len(numpy_mad(np.repeat(user, 3), items, threshold=18.63524, cap=3, d_max=3, seed=seed))
        for seed in range(10)
    ]
    assert abs(np.mean(counts) - 610) < 24


def test_mad_of_no_pairs_releases_nothing():
    empty = np.array([], np.int64)
    assert numpy_mad(empty, empty).tolist() == []


# --- PipelineDP ---


def test_pipeline_dp_says_when_it_is_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pipeline_dp", None)
    monkeypatch.setattr(sys, "argv", ["pipeline_dp_select", "in.tsv", "out.txt"])
    pipeline_dp_select.main()
    assert json.loads(capsys.readouterr().out) == {
        "skipped": "pipeline-dp is not installed; pip install 'beam-dp[pipeline_dp]'"
    }


def test_pipeline_dp_selects_what_many_users_share(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pipeline_dp", reason="pipeline-dp is not installed (extra pipeline_dp)")
    lines = [f"u{user}\t{item}\n" for user in range(2_000) for item in ("common", f"own{user}")]
    (tmp_path / "in.tsv").write_text("".join(lines))
    monkeypatch.setattr(sys, "argv", ["select", str(tmp_path / "in.tsv"), str(tmp_path / "out.txt")])
    pipeline_dp_select.main()
    assert json.loads(capsys.readouterr().out)["released"] == 1
    assert (tmp_path / "out.txt").read_text() == "common\n"
