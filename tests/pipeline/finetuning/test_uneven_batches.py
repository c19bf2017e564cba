"""Fine-tuning with batches that the ranks cannot share equally: the same numbers as on one rank."""

import json

import pytest

from tests.pipeline.finetuning.finetune_runs import records, words
from tests.pipeline.workers import processes
from tests.pipeline.workers.finetune_tasks import finetune_each

pytestmark = pytest.mark.slow

OF_ONE_DIVISION = {"weights_checksum", "moments_checksum", "batch_checksum", "layout"}
# Batches that three ranks cannot share equally, one ZeRO stage each: 5 samples are two for ranks 0 and 1 and one for
# rank 2; of 4 and 2 samples rank 2 has none.
UNEVEN = [("stsb", 5, 1), ("race", 2, 2), ("squad2", 4, 3)]


def uneven(data, output, task, batch, stage):
    config = output / f"{task}.json"
    optimizer = {"type": "AdamW", "params": {"lr": 0.003, "bias_correction": False}}
    zero = {"stage": stage, "reduce_bucket_size": 5000}
    config.write_text(json.dumps({"train_batch_size": batch, "optimizer": optimizer, "zero_optimization": zero}))
    how = ("--deepspeed_config", config, "--steps", 3, "--log-interval", 1, "--eval-interval", 2)
    return words(data, task, output / task, *how, "--dropout", 0, "--classifier-dropout", 0)


@pytest.fixture(scope="module")
def uneven_runs(data, tmp_path_factory):
    """The runs of one rank and of three: for each the directory, and status and stderr of each rank."""
    found = []
    for ranks in (1, 3):
        output = tmp_path_factory.mktemp(f"ranks-{ranks}")
        commands = [uneven(data, output, *case) for case in UNEVEN]
        found.append((output, processes.run(ranks, finetune_each, [(each, each) for each in commands], scratch=output)))
    return found


@pytest.mark.parametrize("number", range(len(UNEVEN)), ids=[case[0] for case in UNEVEN])
def test_a_batch_that_three_ranks_cannot_share_equally_is_trained_as_by_one(uneven_runs, number):
    (outputs, of_one), (output, of_three) = uneven_runs
    task = UNEVEN[number][0]
    assert [status for status, _ in (*of_one[number], *of_three[number])] == [0, 0, 0, 0]
    alone, shared = records(outputs / task), records(output / task)
    assert len(alone) == 5
    for one, three in zip(alone, shared, strict=True):
        assert one.keys() == three.keys()
        for name in one.keys() - OF_ONE_DIVISION:
            value = one[name]
            # A correlation of predictions that hardly differ yet amplifies their rounding a hundredfold; near 0 the
            # relative bound would be smaller than that.
            rel, least = (1e-3, 5e-5) if name in ("pearson", "spearman") else (1e-5, 1e-5)
            near = pytest.approx(value, rel=rel, abs=least) if isinstance(value, float) else value
            assert three[name] == near, name
