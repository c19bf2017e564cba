"""The measurement of many ranks in one process."""

import pytest

from benchmarks import many_ranks


@pytest.mark.slow
def test_it_prints_a_row_for_each_number_of_ranks(capsys):
    assert many_ranks.main(["--ranks", "3"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    ranks, *milliseconds = (float(cell) for cell in row.strip("|").split("|"))
    assert ranks == 3
    assert len(milliseconds) == 3
    assert all(value >= 0 for value in milliseconds)
