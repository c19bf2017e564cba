"""`shards` as a whole: every token once, equal bytes on any ranks, and its messages for mistakes."""

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
from sentencepiece import sentencepiece_model_pb2 as model_proto

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.corpus.documents import Document
from data_prep.format import manifest as manifests
from data_prep.format import shards
from data_prep.format.pairs import max_pairs
from data_prep.text.normalization import normalize
from data_prep.text.sentences import split_sentences
from data_prep.text.vocabulary import Vocabulary
from tests.data_prep import corpora

pytestmark = pytest.mark.slow


def make(documents: Path, vocabulary: Path, out: Path, *options: str) -> shards.ShardSet:
    main(["shards", "--documents", str(documents), "--vocab", str(vocabulary), "--out", str(out), *options])
    return shards.open_shards(out)


def command(documents: Path, vocabulary: Path, out: Path) -> list[str | Path]:
    """The command of `shard_directory`, with smaller units."""
    job = ["-m", "tests.data_prep.small_units", "shards", "--documents", documents, "--vocab", vocabulary]
    return [*job, "--out", out, "--max-seq-length", "64"]


def contents(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def small_units_set(documents_directory: Path, vocabulary_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shards that one uninterrupted process makes of the corpus in small units."""
    out = tmp_path_factory.mktemp("alone") / "set"
    result = corpora.run(command(documents_directory, vocabulary_file, out))
    assert result.returncode == 0, result.stderr
    assert len(list(out.glob("shard-*"))) > 8
    return out


@pytest.mark.parametrize(("length", "options"), [(64, ()), (512, ()), (128, ("--no-pack",))])
def test_the_pairs_of_a_document_are_its_text(
    documents_directory: Path,
    vocabulary_file: Path,
    vocabulary: Vocabulary,
    tmp_path: Path,
    length: int,
    options: tuple,
) -> None:
    rows = make(documents_directory, vocabulary_file, tmp_path / "set", "--max-seq-length", str(length), *options)
    pairs = defaultdict(list)
    most = max_pairs(length) if not options else 1
    used = 0
    for row in rows:
        lengths = sum(row.parts)
        positions = int((lengths + 2 + (row.parts.b > 0)).sum())
        assert 0 < positions <= length
        assert 1 <= len(lengths) <= most
        assert len(row.tokens) == lengths.sum()
        used += positions
        start = 0
        for n, document in zip(lengths.tolist(), row.documents.tolist()):
            pairs[document].append(row.tokens[start : start + n].tolist())
            start += n
    left_out = 0
    for ordinal, document in enumerate(corpora.make_documents(120)):
        sentences = vocabulary.encode([normalize(s) for s in split_sentences(document.text)])
        tokens = [token for sentence in sentences for token in sentence]
        if len(tokens) < 16:
            assert ordinal not in pairs
            left_out += 1
            continue
        # Pairs lie in rows in no particular order: lay them along the text like dominoes.
        start, waiting = 0, pairs.pop(ordinal)
        while waiting:
            fitting = [pair for pair in waiting if tokens[start : start + len(pair)] == pair]
            assert fitting, f"no pair goes on at token {start} of document {ordinal}"
            longest = max(fitting, key=len)
            waiting.remove(longest)
            start += len(longest)
        assert start == len(tokens)
    assert not pairs
    counts = rows.manifest.counts
    assert counts.documents == 120
    assert counts.documents_left_out == left_out
    assert counts.rows == len(rows)
    assert counts.tokens == sum(len(row.tokens) for row in rows)
    assert counts.pairs == sum(len(row.documents) for row in rows)
    assert counts.max_pairs_in_row == max(len(row.documents) for row in rows)
    assert counts.fill == pytest.approx(used / (len(rows) * length))
    assert sum(counts.sentences_per_document) == 120
    if not options:
        assert counts.fill > 0.92  # spans end before words, which have many of 400 pieces


def test_the_manifest_says_what_it_was_made_of(shard_directory: Path, vocabulary: Vocabulary) -> None:
    manifest = manifests.read_manifest(shard_directory)
    assert manifest.vocabulary_sha256 == vocabulary.sha256
    assert manifest.vocabulary_size == 400
    assert manifest.max_seq_length == 64
    assert manifest.sources[0]["documents"] == 120
    assert Vocabulary.load(shard_directory / "spiece.model").sha256 == vocabulary.sha256
    assert {file.name for file in manifest.files} | {"manifest.json", "README.md"} == set(os.listdir(shard_directory))
    card = (shard_directory / "README.md").read_text()
    assert card.startswith('---\nlanguage: "en"\n')
    assert f"{manifest.counts.tokens:,}" in card


def test_sentences_per_document_are_counted_in_doubling_bins(vocabulary_file: Path, tmp_path: Path) -> None:
    texts = ["One two three four five six. " * n for n in (1, 2, 3, 4, 7, 8)] + [" "]
    documents = corpora.write_documents(tmp_path / "documents", [Document(str(i), "", t) for i, t in enumerate(texts)])
    counts = make(documents, vocabulary_file, tmp_path / "set", "--min-tokens", "1").manifest.counts
    assert counts.sentences_per_document == [1, 1, 2, 2, 1]
    assert counts.sentences == 25
    assert counts.documents_left_out == 1


def test_a_complete_set_is_recognised(
    documents_directory: Path, vocabulary_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(documents_directory, vocabulary_file, tmp_path / "set")
    before = contents(tmp_path / "set")
    capsys.readouterr()
    make(documents_directory, vocabulary_file, tmp_path / "set")
    assert "nothing to do" in capsys.readouterr().out
    with pytest.raises(UserError, match="seed is 0 there, 1 was asked for"):
        make(documents_directory, vocabulary_file, tmp_path / "set", "--seed", "1")
    assert contents(tmp_path / "set") == before


def test_what_older_rules_made_is_not_continued(
    documents_directory: Path, vocabulary_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as old:
        old.setattr(manifests, "RULES_VERSION", 1)
        make(documents_directory, vocabulary_file, tmp_path / "complete")
        old.setattr(manifests, "write_manifest", lambda *_: sys.exit(1))
        with pytest.raises(SystemExit):
            make(documents_directory, vocabulary_file, tmp_path / "begun")
    options = tmp_path / "begun" / ".units" / "options.json"
    recorded = json.loads(options.read_text())
    assert recorded.pop("rules_version") == 1
    options.write_text(json.dumps(recorded))  # as before there was a version
    before = contents(tmp_path / "complete")
    for name, message in (("complete", "shards .* is 1"), ("begun", "an unfinished run .* is None")):
        with pytest.raises(UserError, match=rf"holds {message} there, {manifests.RULES_VERSION} was asked for\)"):
            make(documents_directory, vocabulary_file, tmp_path / name)
    assert contents(tmp_path / "complete") == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-seq-length", "15"], "--max-seq-length is 15"),
        (["--max-seq-length", "65536"], "--max-seq-length is 65536"),
        (["--short-seq-prob", "1.5"], "--short-seq-prob is 1.5"),
        (["--seed", "-1"], "--seed is -1"),
        (["--min-tokens", "0"], "--min-tokens: 0 is not at least 1"),
        (["--documents", "nowhere"], "nowhere is not a directory"),
        (["--vocab", "nowhere.model"], r"cannot read the vocabulary: nowhere\.model does not exist"),
        (["--split", "held_out"], "no held_out split"),
        (["--max-seq-length", "many"], "invalid int value: 'many'"),
        (["--split", "test"], "invalid choice: 'test'"),
    ],
)
def test_mistakes(
    documents_directory: Path, vocabulary_file: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make(documents_directory, vocabulary_file, tmp_path / "set", *options)
    assert not (tmp_path / "set").exists()


def test_a_vocabulary_of_more_pieces_than_uint16_holds(
    documents_directory: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    proto = model_proto.ModelProto.FromString(vocabulary.serialized)
    for number in range(len(vocabulary), 65_537):
        proto.pieces.add(piece=f"▁{number}x", score=-20.0)
    (tmp_path / "huge.model").write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="has 65537 pieces, and at most 65536 can be used"):
        make(documents_directory, tmp_path / "huge.model", tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_no_document_is_long_enough(documents_directory: Path, vocabulary_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lower --min-tokens"):
        make(documents_directory, vocabulary_file, tmp_path / "set", "--min-tokens", "100000")
    assert not (tmp_path / "set").exists()
    assert len(make(documents_directory, vocabulary_file, tmp_path / "set", "--min-tokens", "16")) > 0


def test_a_full_disk_is_one_line_and_leaves_what_was_done(
    documents_directory: Path, vocabulary_file: Path, small_units_set: Path, tmp_path: Path
) -> None:
    # A limit on the size of a file stands for the disk: writes fail in the same place, with EFBIG.
    sizes = sorted(path.stat().st_size for path in small_units_set.glob("shard-*"))
    limit = sizes[len(sizes) // 2]
    arguments = [str(argument) for argument in command(documents_directory, vocabulary_file, tmp_path / "set")]
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=corpora.ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert result.returncode == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: the disk is full")
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.rglob("*.tmp"))
    finished = corpora.run(arguments)
    assert finished.returncode == 0, finished.stderr
    assert contents(tmp_path / "set") == contents(small_units_set)


def test_another_set_that_is_moved_to_the_output_meanwhile_stays_as_it_is(
    small_units_set: Path, documents_directory: Path, vocabulary_file: Path, tmp_path: Path
) -> None:
    out, kept, log = tmp_path / "set", tmp_path / "kept", tmp_path / "units"
    shutil.copytree(small_units_set, tmp_path / "other")
    words = [*command(documents_directory, vocabulary_file, out), "--seed", "1"]
    process = corpora.start(words, 2, UNIT_LOG=str(log), SECONDS_A_UNIT="0.5")
    while not log.exists() or len(log.read_text().split()) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    processes = [process.pid, *corpora.descendants(process.pid)]
    for pid in processes:  # a job that is slow or fast: it cannot end before the directories are moved
        os.kill(pid, signal.SIGSTOP)
    out.rename(kept)
    (tmp_path / "other").rename(out)
    for pid in processes:
        os.kill(pid, signal.SIGCONT)
    errors = process.communicate(timeout=300)[1]
    assert process.returncode == 2, errors
    assert f"{out} was moved or replaced while this command worked in it" in errors
    assert "Traceback" not in errors
    assert contents(out) == contents(small_units_set)
    assert (kept / ".units").is_dir()
