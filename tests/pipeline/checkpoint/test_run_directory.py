"""The directory of a run before its first start."""

import pytest

from common.errors import UserError
from pipeline.checkpoint import run_directory


def test_an_output_that_cannot_be_made_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--output"):
        run_directory.check_output(tmp_path / "file" / "run")
    run_directory.check_output(tmp_path / "new" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "export", "done", "results.json"])
def test_files_that_no_run_wrote_are_refused(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=f"holds {name} and no run"):
        run_directory.check_output(tmp_path)
