"""Which numbers become curves."""

from pipeline.tracking.tracker import Curves
from tests.pipeline.tracking.made_records import evaluation, training


def tags(split, metrics, objective="sop", everything=False):
    return {tag.partition("/")[2] for tag in Curves(objective, everything).make_scalars(10, split, metrics).values}


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


def test_of_further_corpora_only_the_losses_and_accuracies():
    further = {f"books/{name}": value for name, value in evaluation(10).items()}
    assert tags("eval", further) == {"books/mlm_loss", "books/mlm_accuracy"}
    assert tags("train", {"samples/books": 5, "epochs/books": 0.1}) == set()


def test_fine_tuning_keeps_the_metrics_of_every_split():
    found = tags("eval", {"accuracy": 0.5, "dev_mm/accuracy": 0.4, "samples": 80}, objective=None)
    assert found == {"accuracy", "dev_mm/accuracy"}


def test_all_curves_have_every_number_and_every_trust_ratio():
    found = tags("train", training(10), everything=True)
    assert {"rows_per_second", "tflops_per_gpu", "sop_loss", "a", "b"} <= found
    assert not {"c", "step", "samples"} & found


def test_tokens_and_epochs_of_an_evaluation_are_those_of_the_training_before_it():
    curves = Curves("sop")
    assert curves.make_scalars(0, "eval", evaluation(0)).consumed == {"tokens": 0, "epochs": 0.0}
    assert curves.make_scalars(20, "eval", evaluation(20)).consumed == {}  # nothing is known yet
    assert curves.make_scalars(20, "train", training(20)).consumed == {"tokens": 400, "epochs": 0.4}
    assert curves.make_scalars(30, "eval", evaluation(30)).consumed == {"tokens": 400, "epochs": 0.4}
