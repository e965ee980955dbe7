"""The papers' tables, run again. Slow: minutes."""

from __future__ import annotations

import pytest

from benchmarks.published import ROWS, Row, read_higgs
from tests.conftest import data_file


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_reproduces_the_published_higgs_row(row: Row):
    """Within 2.5 published standard deviations.

    A mean of 5 runs of standard deviation about 10 moves by 5: a right mean 1 published deviation off fails
    with probability below 1e-3, and with these fixed seeds not at all once it has passed. A sigma 5% off
    moves the mean by more than the tolerance.
    """
    mean, _ = row.mean(read_higgs(data_file("higgs_activity.tsv.gz")))
    assert row.agrees(mean), mean
