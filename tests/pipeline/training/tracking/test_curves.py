"""Which numbers become curves."""

from pipeline.training.tracking.curves import curves_of
from tests.pipeline.training.tracking.made_records import evaluation, training


def tags(split, metrics, objective="sop", everything=False):
    return {tag.partition("/")[2] for tag in curves_of(split, metrics, objective, everything)}


TRAINING = {
    *("loss", "mlm_loss", "mlm_accuracy", "sop_accuracy", "learning_rate", "grad_norm", "loss_scale"),
    *("overflow_steps", "trust_ratio_min", "trust_ratio_max", "tokens_per_second", "peak_share", "data_wait_share"),
    "peak_memory_gb",
}
HELD_OUT = {f"{task}_accuracy{end}" for task in ("mlm", "sop") for end in ("", "_low", "_high")} | {"mlm_loss"}


def test_pretraining_shows_what_is_trained():
    assert tags("train", training(10)) == TRAINING
    assert tags("eval", evaluation(10)) == HELD_OUT
    assert tags("train", training(10), "mlm") == TRAINING - {"sop_accuracy"}
    assert tags("eval", evaluation(10), "nsp") == {name.replace("sop", "nsp") for name in HELD_OUT}
    assert tags("save", {"checkpoint_seconds": 3.0}) == tags("train", {"loss": float("nan"), "step": 3}) == set()
    further = {f"books/{name}": value for name, value in evaluation(10).items()}
    assert tags("eval", further) == {"books/mlm_loss", "books/mlm_accuracy"}


def test_fine_tuning_and_all_curves_keep_every_number():
    found = tags("eval", {"accuracy": 0.5, "dev_mm/accuracy": 0.4, "samples": 80}, objective=None)
    assert found == {"accuracy", "dev_mm/accuracy"}
    found = tags("train", training(10), everything=True)
    assert {"rows_per_second", "tflops_per_gpu", "sop_loss", "a", "b"} <= found
    assert not {"c", "step", "samples"} & found
