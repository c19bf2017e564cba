"""docs/continuing.md does what it says: its commands run one after the other, on small models and with few steps.

The commands are taken from the page. Only what decides the size is replaced, by the table SMALLER; each of its entries
must occur on the page. All commands run in one process, without the launcher.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
import transformers

from model import huggingface
from tests.docs.pages import REPOSITORY, commands_of, module_command
from tests.pipeline.pretraining import trained_models
from tests.pipeline.workers import processes
from tests.pipeline.workers.page_commands import run_page

pytestmark = pytest.mark.slow

PAGE = REPOSITORY / "docs" / "continuing.md"
COMMANDS = [command for _, command in commands_of(PAGE)]

SMALLER = {
    "--model albert-base": "--model albert-tiny --model-args hidden_size=32 num_attention_heads=4 intermediate_size=32",
    "ds_configs/base.json": "small.json",
    "--out shards/train": "--out shards/train --max-seq-length 64",
    "--out shards/held_out": "--out shards/held_out --max-seq-length 64",
    "--max-seq-length 128": "--max-seq-length 32",
    "--max-seq-length 512": "--max-seq-length 64",
    "--steps 10000": "--steps 2",
    "--steps 20000": "--steps 4",
    "--steps 112500": "--steps 2",
    "--steps 12500": "--steps 2",
}


def smaller(command: str) -> tuple[str, list[str]]:
    """The module of a command of the page, and its arguments as they are run here."""
    for theirs, ours in SMALLER.items():
        command = re.sub(rf"(?<!\S){re.escape(theirs)}(?!\S)", ours, command)
    found = module_command(command)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def printed(corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A directory in which the page was run from its first command to its last, and what each training printed."""
    directory = tmp_path_factory.mktemp("continuing")
    (directory / "documents").symlink_to(corpus.documents)
    shutil.copyfile(corpus.vocabulary, directory / "vocabulary.model")
    trained_models.publish(trained_models.albert(corpus.vocabulary), directory / "albert-base-v2", corpus.vocabulary)
    trained_models.export(directory / "export", corpus.vocabulary)
    transformers.AutoTokenizer.from_pretrained(directory / "export").save_pretrained(directory / "saved-again")
    config_file = {"train_batch_size": 4, "optimizer": {"type": "Lamb", "params": {"lr": 0.01}}}
    (directory / "small.json").write_text(json.dumps(config_file))
    commands = [smaller(command) for command in COMMANDS]
    return directory, processes.run(1, run_page, directory, commands, scratch=directory)


def test_every_replacement_is_of_something_on_the_page() -> None:
    text = "\n".join(COMMANDS)
    for theirs in SMALLER:
        assert re.search(rf"(?<!\S){re.escape(theirs)}(?!\S)", text), theirs


def test_each_command_does_what_the_page_says(printed: tuple[Path, list[str]]) -> None:
    directory, (continued, phase_1, phase_2, longer) = printed
    assert "weights from albert-base-v2\n" in continued  # nothing is new
    assert "weights from" not in phase_1
    assert "new: the positions 32 to 63 of albert.embeddings.position_embeddings.weight" in phase_2
    assert "length changed after step 2: 2 -> 4 steps; learning rate there: " in longer
    assert "resuming from step 2" in longer
    assert (directory / "runs" / "continued" / "done").read_text() == "4\n"
    assert huggingface.load(directory / "runs" / "phase2" / "export").config.max_position_embeddings == 64
    assert {path.name for path in (directory / "shards" / "again").glob("shard-*")} == {"shard-00000.arrow"}
