"""The command line of all jobs: mistakes, and how it ends."""

import re
import sys
from pathlib import Path

import pytest

from data_prep.__main__ import entry

EXTRACT = "extract --out out --source"
VOCABULARY = "vocab --documents {documents} --out v.model --size"
SHARDS = "shards --documents {documents} --vocab {vocabulary} --out out --max-seq-length 64"
MISTAKES = (
    ("shards --seed 1", "the following arguments are required: --documents, --vocab, --out"),
    ("shards --sead 1", r"unknown argument --sead; did you mean --seed\?"),
    ("shrads", r"unknown job shrads; did you mean shards\?"),
    (f"{EXTRACT} books --input nothing", "nothing does not exist"),
    (f"{EXTRACT} wikipedia --input a.txt", r"a\.txt is no MediaWiki export"),
    (f"{EXTRACT} books --input noise.txt", r"--input holds no document \(skipped 1 not a text file\)"),
    (f"{EXTRACT} text --input e.txt --encoding ascii", r".*\(skipped 1 not in ascii\); check --encoding"),
    (f"{EXTRACT} jsonl --input a.jsonl --text-field b", r".*\(skipped 1 no text\); check --text-field"),
    (f"{EXTRACT} jsonl --input a.jsonl --where text==c", r".*\(skipped 1 left out by --where\); check --where"),
    (f"{EXTRACT} books --input a.txt --held-out 1", "argument --held-out: 1 is not at least 0 and below 1"),
    (f"{EXTRACT} books --input a.txt --held-out 0.5 --validation 0.5", ".* leave nothing to train on"),
    (f"{EXTRACT} books --input a.txt --id-field x", "--id-field means nothing to --source books"),
    (f"{EXTRACT} books --input large.txt", r"large\.txt has 65 MB, more than one book; split it"),
    *((f"{EXTRACT} text --input a.txt --encoding {name}", "--encoding .* is no encoding that Python knows")
      for name in ("latin-99", "rot13", "base64", "\0")),
    (f"{VOCABULARY} 5", "--size is 5"),
    (f"{VOCABULARY} 60000", ".*use --size"),
    (f"{VOCABULARY} 65537", ".*choose one from 14 to 65536"),
    (f"{VOCABULARY} 260 --byte-fallback", ".*choose one from 270 to 65536"),
    (f"{VOCABULARY} 300 --out v.bin", ".*ends in .model"),
    (f"{VOCABULARY} 300 --language ../x", r".* --language: \.\./x is not the code of a language; give one such as de"),
    (f"{SHARDS} --max-seq-length 15", "argument --max-seq-length: 15 is not from 16 to 65535"),
    (SHARDS.replace("{documents}", "nowhere"), "nowhere is not a directory"),
    (f"{SHARDS} --documents nowhere", "--documents is given 2 times; give all of its values after one --documents"),
    (f"{SHARDS} --vocab nowhere.model", r"cannot read the vocabulary: nowhere\.model does not exist"),
    (f"{SHARDS} --split held_out", ".* no held_out split"),
    (f"{SHARDS} --against nowhere", ".*--dedup is none; add"),
)  # fmt: skip


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_mistakes_are_one_line(words, message, documents_directory, vocabulary_file, tmp_path, monkeypatch, capsys):
    """The status is 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    given = {"a.txt": b"It is a text.", "e.txt": "It is a café.".encode(), "a.jsonl": b'{"text": "a", "b": null}\n'}
    given |= {"noise.txt": bytes(100), "large.txt": bytes(65 << 20)}
    for name, content in given.items():
        if name in words:
            Path(name).write_bytes(content)
    before = set(tmp_path.iterdir())
    arguments = words.format(documents=documents_directory, vocabulary=vocabulary_file).split(" ")
    monkeypatch.setattr(sys, "argv", ["data_prep", *arguments])
    assert entry() == 2
    out, err = capsys.readouterr()
    (error,) = (line for line in err.splitlines() if "%)" not in line)  # as lines of the progress have
    assert re.match(f"error: {message}", error), error
    assert all(line.startswith(("extract: language", "vocab: training")) for line in out.splitlines())
    assert set(tmp_path.iterdir()) == before


def test_without_a_job_it_prints_the_jobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["data_prep"])
    with pytest.raises(SystemExit) as ended:
        entry()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"    {job} " in shown for job in ("extract", "vocab", "shards"))
