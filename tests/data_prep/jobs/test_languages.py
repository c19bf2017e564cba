"""From an export to shards, in Japanese: each job hands the language and the normalisation on."""

import json
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.format.shards import open_shards
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.normalize import normalize
from tests.data_prep import foreign_pages
from tests.data_prep.foreign_pages import WIKIS, Wiki

COPIES = 20
ENGLISH = Wiki("en", ("Media", "Special", "User", "File", "Template", "Category"), "It is one. It is two.", "", "", ())


def extract(wiki: Wiki, directory: Path, *flags: str) -> Path:
    path = directory / f"{wiki.language}.xml"
    path.write_text(foreign_pages.export(wiki, [wiki.page] * COPIES), encoding="utf-8")
    out = directory / f"{wiki.language}-documents"
    main(["extract", "--source", "wikipedia", "--input", str(path), "--out", str(out), *flags])
    return out


def make_vocabulary(out: Path, *documents: Path, size: int, flags: tuple[str, ...] = ()) -> Path:
    main(["vocab", "--documents", *map(str, documents), "--out", str(out), "--size", str(size), *flags])
    return out


def test_from_an_export_to_shards(tmp_path: Path) -> None:
    wiki = next(wiki for wiki in WIKIS if wiki.language == "ja")
    documents = extract(wiki, tmp_path)
    flags = ("--keep-case", "--keep-accents")
    with pytest.raises(UserError) as refused:
        make_vocabulary(tmp_path / "large.model", documents, size=30_000, flags=flags)
    size = int(str(refused.value).rpartition("use --size ")[2].split()[0])  # the largest that so little text allows
    model = make_vocabulary(tmp_path / "a.model", documents, size=size, flags=flags)
    record = json.loads(model.with_suffix(".json").read_text())
    assert record["options"]["language"] == wiki.language
    assert record["options"]["normalization"] == "nfkc, single spaces"
    assert record["sample"]["sentences"] == COPIES * len(wiki.sentences)

    shards = tmp_path / "shards"
    words = ["shards", "--documents", documents, "--vocab", model, "--out", shards, "--short-seq-prob", 0]
    main([*map(str, words)])
    rows = open_shards(shards)
    assert (rows.manifest.language, rows.manifest.normalization) == (wiki.language, "nfkc, single spaces")
    assert rows.manifest.counts.sentences == COPIES * len(wiki.sentences)
    assert rows.manifest.counts.unknown_tokens == 0

    # A document is one pair; the words come back, capitals and accents too.
    vocabulary = load_vocabulary(shards / "spiece.model")
    normalised = [normalize(sentence, vocabulary.normalization) for sentence in wiki.sentences]
    encoded = vocabulary.encode(normalised)
    expected = [token for ids in encoded for token in ids]
    assert rows.row(0).tokens[: len(expected)].tolist() == expected
    assert [vocabulary.decode(ids) for ids in encoded] == normalised


def test_several_languages_and_a_given_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wiki = next(wiki for wiki in WIKIS if wiki.language == "ja")
    japanese = extract(wiki, tmp_path)
    with pytest.raises(UserError, match=r"holds other documents .*language"):
        extract(wiki, tmp_path, "--language", "nl")
    english = extract(ENGLISH, tmp_path)
    assert json.loads((english / "documents.json").read_text())["options"]["language"] == "en"
    model = make_vocabulary(tmp_path / "a.model", english, japanese, size=78)
    assert load_vocabulary(model).language == "en,ja"
    command = ["shards", "--documents", str(english), "--vocab", str(model), "--min-tokens", "1"]
    main([*command, "--out", str(tmp_path / "english")])
    assert open_shards(tmp_path / "english").manifest.language == "en"
    main([*command, "--out", str(tmp_path / "english"), "--language", "en-GB"])
    assert "is complete; nothing to do" in capsys.readouterr().out
    main([*command, "--out", str(tmp_path / "german"), "--language", "de"])
    assert open_shards(tmp_path / "german").manifest.language == "de"
    main([*command, "--out", str(tmp_path / "german"), "--language", "de"])
    assert "is complete; nothing to do" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"holds shards of other options .*language"):
        main([*command, "--out", str(tmp_path / "german")])
    main([*command[:3], str(japanese), *command[3:], "--out", str(tmp_path / "both")])
    assert open_shards(tmp_path / "both").manifest.language == "en,ja"
