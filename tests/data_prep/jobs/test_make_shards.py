"""`shards` as a whole: every token once, equal bytes on any ranks, and its messages for mistakes."""

import os
import resource
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.corpus.documents import Document
from data_prep.format import shard_manifest as manifests
from data_prep.format import shards
from data_prep.format.pairs import max_pairs
from data_prep.jobs.make_shards import encode_documents
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.normalize import normalize
from data_prep.text.sentences import split_sentences
from data_prep.text.text_encoder import Encoder
from tests.data_prep import corpora


def make(documents: Path, vocabulary: Path, out: Path, *options: str) -> shards.ShardSet:
    main(["shards", "--documents", str(documents), "--vocab", str(vocabulary), "--out", str(out), *options])
    return shards.open_shards(out)


@pytest.mark.parametrize(("length", "options"), [(64, ()), (128, ("--no-pack",))])
def test_the_pairs_of_a_document_are_its_text(documents_directory, vocabulary_file, tmp_path, length, options):
    vocabulary = load_vocabulary(vocabulary_file)
    rows = make(documents_directory, vocabulary_file, tmp_path / "set", "--max-seq-length", str(length), *options)
    pairs = defaultdict(list)
    most = max_pairs(length) if not options else 1
    for row in rows:
        lengths = sum(row.parts)
        positions = int((lengths + 2 + (row.parts.b > 0)).sum())
        assert 0 < positions <= length
        assert 1 <= len(lengths) <= most
        assert len(row.tokens) == lengths.sum()
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
    assert {file.name for file in rows.manifest.files} | {"manifest.json"} == set(os.listdir(tmp_path / "set"))
    assert load_vocabulary(tmp_path / "set").sha256 == rows.manifest.vocabulary_sha256 == vocabulary.sha256
    counts = rows.manifest.counts  # the others are those of `stats`, which test_verify.py counts
    assert (counts.documents, counts.documents_left_out, counts.rows) == (120, left_out, len(rows))
    assert options or counts.fill > 0.92  # spans end before words, which have many of 400 pieces


def test_what_is_left_out_is_counted_and_a_set_without_rows_is_refused(vocabulary_file, tmp_path, monkeypatch):
    texts = ["One two three four five six. " * n for n in (1, 2, 3, 4, 7, 8)] + [" "]
    documents = corpora.write_documents(tmp_path / "documents", [Document(str(i), "", t) for i, t in enumerate(texts)])
    counts = make(documents, vocabulary_file, tmp_path / "set", "--min-tokens", "1").manifest.counts
    assert counts.sentences == 25
    assert counts.documents_left_out == 1
    with pytest.raises(UserError, match=r"of 7 documents 7 have fewer than 1000 .* lower --min-tokens"):
        make(documents, vocabulary_file, tmp_path / "none", "--min-tokens", "1000")
    assert not list((tmp_path / "none").glob("*"))
    # A unit that keeps nothing makes a shard without rows, and the others have theirs.
    monkeypatch.setattr("data_prep.corpus.work_units.MIN_UNIT_BYTES", 1)
    rows = make(documents, vocabulary_file, tmp_path / "units", "--min-tokens", "30")
    assert 0 in [file.rows for file in rows.manifest.shards()]
    assert len(rows) == rows.manifest.counts.rows == sum(file.rows for file in rows.manifest.shards()) > 0
    assert all(row.tokens.size >= 30 for row in rows)


def test_a_complete_set_is_recognised_and_no_other(documents_directory, vocabulary_file, tmp_path, monkeypatch):
    out, begun = tmp_path / "set", tmp_path / "begun"
    make(documents_directory, vocabulary_file, out)
    before = corpora.contents(out)
    for words in ("--seed 1", "--min-tokens 1", "--short-seq-prob 1", "--max-seq-length 16", "--dedup exact"):
        name, value = words[2:].replace("-", "_").split()
        with pytest.raises(UserError, match=rf"{name} is \S+ there, '?{value}\S* was asked for"):
            make(documents_directory, vocabulary_file, out, *words.split())
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "write_manifest", lambda *_: sys.exit(1))
        with pytest.raises(SystemExit):
            make(documents_directory, vocabulary_file, begun)
    (begun / "spiece.model").write_text("of a person")
    with pytest.raises(UserError, match=r"spiece\.model is there already and this job did not write it"):
        make(documents_directory, vocabulary_file, begun)
    assert (begun / "spiece.model").read_text() == "of a person"
    monkeypatch.setattr(manifests, "RULES_VERSION", 1000)
    for place, holds in ((out, "shards of other options"), (begun, "an unfinished run of other options")):
        with pytest.raises(UserError, match=rf"holds {holds} \(rules_version is \d+ there, 1000 was asked for\)"):
            make(documents_directory, vocabulary_file, place)
    assert corpora.contents(out) == before


def test_rows_change_only_with_the_version_of_the_rules(tmp_path):
    """If the rules have changed, raise RULES_VERSION and write what the shards have now. Else rows would be mixed."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,()"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("".join(f"{name}\n" for name in names))
    made = corpora.make_documents(40)
    quoted = Document("quoted", "", "“Stop!” Mrs. J. R. Will cried at No. 2. “I can't,” said he… And so on.\n" * 9)
    new = corpora.make_sentences(400, seed=7)
    documents = [*made[6:], made[7], quoted, Document("longer", "", " ".join([made[0].text, *new]))]
    place = corpora.write_documents(tmp_path / "documents", documents, held_out=made[:6])
    rows = make(place, tmp_path / "vocab.txt", tmp_path / "set", "--max-seq-length", "128", "--dedup", "near")
    counts, files = rows.manifest.counts, [file.xxh3_128 for file in rows.manifest.shards()]
    assert (counts.duplicates_left_out, counts.similar_left_out) == (1, 1)
    assert {manifests.RULES_VERSION: files} == {8: ["9d3a168798ddb4cfcc59bb050be19c77"]}


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_all_done_stays(documents_directory, vocabulary_file, shard_directory, tmp_path):
    # A limit on the size of a file stands for the disk: writes fail in the same place, with EFBIG.
    limit = min(path.stat().st_size for path in shard_directory.glob("shard-*")) // 2
    words = ["shards", "--documents", documents_directory, "--vocab", vocabulary_file, "--out", tmp_path / "set"]
    result = subprocess.run(
        [sys.executable, "-m", "tests.data_prep.small_units", *map(str, words), "--max-seq-length", "64"],
        cwd=corpora.ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("error: the disk is full")
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.rglob("*.tmp"))
    assert (tmp_path / "set" / ".units" / "options.json").exists()


def test_the_sentences_of_a_long_document_are_all_its_own(vocabulary):
    """They are read in groups."""
    numbers = [1, 1023, 1024, 1025, 3000]
    texts = [("Mola bafilon.\n" * number, "en") for number in numbers]
    tokens, lengths, of_documents, _ = encode_documents(texts, Encoder(vocabulary))
    assert of_documents.tolist() == numbers
    assert (len(lengths), lengths.sum()) == (sum(numbers), len(tokens))
