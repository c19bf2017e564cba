"""The paper's claims in small: what differs between their sides, and their page."""

import dataclasses
import json
import re

import pytest

from benchmarks import claims
from benchmarks.claims import CONTENT, SIDES, SMALL, section, stages
from benchmarks.shared import commands
from data_prep.__main__ import main as data_prep
from pipeline.settings import pretrain_flags
from tests.data_prep.corpora import make_sentences
from tests.pipeline.workers.forked import ForkedCommands


def test_all_sides_of_a_claim_get_the_same_compute(tmp_path):
    for claim in CONTENT["claims"]:
        flops = [SMALL.steps(SIDES[key]) * SIDES[key].rows * SMALL.row_flops(SIDES[key]) for key in claim["sides"]]
        assert max(flops) / min(flops) < 1.01
    assert SMALL.steps(SIDES["base"]) == round(SMALL.tokens / 128 / 8)
    *_, runs = stages(list(SIDES), SMALL, [tmp_path], 3, tmp_path)
    assert len({command.done for command in runs}) == 9 * 3
    for command in runs:
        args = pretrain_flags.parse(command.argv[3:])
        side = SIDES[args.output.parts[-2]]
        assert (args.output / "done", args.objective, args.max_ngram) == (command.done, side.objective, side.max_ngram)


def test_the_page_compares_seed_by_seed():
    values = {"sop": [(0.80, 0.61), (0.84, 0.63), (0.82, 0.62)], "nsp": [(0.49, 0.70), (0.51, 0.72)]}
    measured = {key: {} for key in SIDES}
    for key, seeds in values.items():
        for seed, (sop, nsp) in enumerate(seeds):
            measured[key][seed] = {
                "mlm_below_unigram": 0.1, "sop_accuracy": sop, "nsp_accuracy": nsp, "tokens": 9000,
            }  # fmt: skip
    text = section(CONTENT["claims"][0], measured)
    # Three seeds: t is 4.303 with two degrees of freedom, and the deviation of 80, 84, 82 is 2.
    assert "| SOP | 3 | 0.01 | 10.0 ± 0.0 | 82.0 ± 5.0 | 62.0 ± 2.5 |" in text
    assert "| SOP - chance | SOP | 3 | +32.0 ± 5.0 | higher |" in text
    # Two seeds: t is 12.71, and the deviation of -1, +1 is the root of 2.
    assert "| NSP - chance | SOP | 2 | +0.0 ± 12.7 | no difference shown |" in text
    assert "| SOP - NSP | MLM | 2 | +0.0 ± 0.0 | no difference shown |" in text


@pytest.mark.slow
def test_claims_are_made_from_text_and_only_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commands, "subprocess", ForkedCommands)
    model = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 32}
    plan = dataclasses.replace(SMALL, model=model, tokens=16_384, vocabulary_size=200, evaluated_tokens=4096)
    monkeypatch.setattr(claims, "SMALL", plan)
    for key in set(SIDES) - {"base", "single-words"}:
        monkeypatch.delitem(SIDES, key)
    monkeypatch.setitem(CONTENT, "claims", [one for one in CONTENT["claims"] if one["name"] == "masks"])
    text = tmp_path / "text.jsonl"
    records = [{"text": " ".join(make_sentences(20, seed=number))} for number in range(60)]
    text.write_text("".join(json.dumps(one) + "\n" for one in records))
    extract = ["extract", "--source", "jsonl", "--input", str(text), "--out", str(tmp_path / "documents")]
    data_prep([*extract, "--held-out", "0.2"])
    words = ["--out", str(tmp_path / "out"), "--documents", str(tmp_path / "documents"), "--seeds", "1"]
    assert claims.main(words) in (None, 0), capsys.readouterr().out
    page = (tmp_path / "out" / "claims.md").read_text()
    assert "not run" not in page
    assert re.search(rf"{SIDES['single-words'].title} \| MLM \| 1 \| [+-][\d.]+ \| one seed \|", page)
    capsys.readouterr()
    assert claims.main(words) in (None, 0)
    assert capsys.readouterr().out.count("done before") == 3 + 2
