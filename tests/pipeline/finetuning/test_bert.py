"""A published BERT with WordPiece is fine-tuned and comes back as a BERT of `transformers`."""

import json

import numpy as np
import pytest
import torch
import transformers

from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.wordpiece_vocabulary import SPECIAL_PIECES
from pipeline import finetune
from pipeline.checkpoint.initial_weights import read_initial_weights
from pipeline.data import sampler
from pipeline.tasks.files import reading
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from tests.data_prep import corpora
from tests.model.examples import randomise
from tests.pipeline.finetuning.finetune_runs import be_no_rank, start_ranks, words
from tests.pipeline.outcome import records

pytestmark = pytest.mark.slow

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


@pytest.fixture(scope="module")
def published(data, tmp_path_factory):
    """A small BERT with vocab.txt, whose special pieces stand at its end, with old names of tensors."""
    directory = tmp_path_factory.mktemp("bert") / "published"
    texts = [text for one in reading.read(TASKS["mrpc"], str(data.glue))["train"] for text in (one.first, one.second)]
    pieces = [*corpora.wordpiece_pieces(texts, 120), *reversed(SPECIAL_PIECES)]
    sizes = SIZES | {"vocab_size": len(pieces), "max_position_embeddings": 64, "pad_token_id": len(pieces) - 1}
    model = transformers.BertModel(transformers.BertConfig(**sizes))
    randomise(model, seed=1, scale=1.0)
    model.save_pretrained(directory)
    (directory / "model.safetensors").unlink()
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = {
        next((name.replace(new, before) for new, before in old.items() if new in name), name): tensor
        for name, tensor in model.state_dict().items()
    }
    torch.save(tensors, directory / "pytorch_model.bin")
    (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    return directory


def inputs_of(tokenizer, examples):
    """The padded inputs of pairs of texts."""
    pairs = [one.first for one in examples], [one.second for one in examples]
    return tokenizer(*pairs, padding=True, truncation=True, max_length=64, return_tensors="pt")


def test_the_way_from_a_published_bert_to_scores_and_back(published, data, tmp_path, monkeypatch):
    be_no_rank(monkeypatch)
    six = ("--steps", "6", "--batch-size", "8", "--eval-interval", "6", "--precision", "fp32")
    assert finetune.main(words(data._replace(init=published), "mrpc", tmp_path / "run", *six)) == 0
    assert finetune.main(["--output", str(tmp_path / "run")]) == 0  # done: the vocabulary of the run is read
    torch.distributed.destroy_process_group()  # a command leaves it to the end of its process
    export = tmp_path / "run" / "export"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(export).eval()
    assert type(theirs) is transformers.BertForSequenceClassification
    last = theirs.config.vocab_size - 1
    assert theirs.config.pad_token_id == last
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_PIECES)) == [last - place for place in range(5)]
    with torch.no_grad():
        logits = theirs(**inputs_of(tokenizer, reading.read(TASKS["mrpc"], str(data.glue))["dev"])).logits.numpy()
    ours = Logits.load(tmp_path / "run" / "logits" / "dev.npz")
    np.testing.assert_allclose(ours.logits, logits, atol=1e-5)
    assert np.ptp(logits[:, 0]) > 1e-3, "the test has lost its power"
    # The export is a place to start from, as the published directory was.
    again, first = read_initial_weights(export), read_initial_weights(published)
    assert again.vocabulary.sha256 == first.vocabulary.sha256 == load_vocabulary(tmp_path / "run").sha256
    assert (again.config.parameter_sharing, again.config.sentence_head) == ("none", "nsp")
    assert again.vocabulary.pieces[:5] == list(SPECIAL_PIECES)
    embeddings = "albert.embeddings.word_embeddings.weight"
    torch.testing.assert_close(again.tensors[embeddings], first.tensors[embeddings], atol=0.05, rtol=0)


def test_a_plain_loop_with_transformers_has_the_same_loss_at_every_step(published, data, tmp_path):
    """Without dropout, on the same batches: theirs are padded, ours are packed and trained by DeepSpeed."""
    head, run, steps, batch_size = tmp_path / "head", tmp_path / "run", 12, 8
    some = words(data._replace(init=published), "mrpc", head, "--steps", "2", "--batch-size", "8")
    config = {
        "train_batch_size": batch_size,
        "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.003, "eps": 1e-6, "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "linear"}},
    }
    (tmp_path / "adamw.json").write_text(json.dumps(config))
    command = words(data._replace(init=head), "mrpc", run, "--steps", steps, "--log-interval", "1", "--dropout", "0")
    command += ["--classifier-dropout", "0", "--deepspeed_config", str(tmp_path / "adamw.json"), "--precision", "fp32"]
    for one in ([*some, "--precision", "fp32"], command):  # DeepSpeed starts once in a process
        (rank,) = start_ranks(tmp_path, 1, one)
        assert rank.wait() == 0, rank.stderr
    ours = [record["loss"] for record in records(run) if record["split"] == "train"]

    none = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), 0.0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(head / "export", **none).train()
    tokenizer = transformers.AutoTokenizer.from_pretrained(head / "export")
    plain = [name.endswith("bias") or "LayerNorm" in name for name, _ in model.named_parameters()]
    groups = [
        {"params": [one for one, is_in in zip(model.parameters(), plain) if is_in == which], "weight_decay": decay}
        for which, decay in ((False, 0.1), (True, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.003, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 2, steps)
    train, theirs = reading.read(TASKS["mrpc"], str(data.glue))["train"], []
    for step in range(steps):
        _, chosen = sampler.rows_at(*sampler.step_positions(step, 0, 1, batch_size, batch_size), len(train), 0)
        examples = [train[index] for index in chosen]
        loss = model(**inputs_of(tokenizer, examples), labels=torch.tensor([one.label for one in examples])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        theirs.append(loss.item())
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)
    assert np.ptp(theirs) > 0.1, "the test has lost its power"
