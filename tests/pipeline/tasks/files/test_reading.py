"""The official files of SQuAD and RACE, data sets of the library, and the errors for broken files."""

import json
import os

import datasets
import pytest

from common.errors import UserError
from data_prep.text.text_encoder import OffsetEncoder
from pipeline.tasks.files import reading
from pipeline.tasks.registry import TASKS
from tests.pipeline.tasks.files.test_glue import write

PASSAGE = "The Café was — opened in 1905."
QUESTION = {"id": "q1", "question": "When?", "answers": [{"text": "1905", "answer_start": 25}]}


def squad(*questions, **options):
    paragraphs = [{"context": PASSAGE, "qas": list(questions)}]
    return json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}, **options)


def test_squad(tmp_path):
    nothing = {**QUESTION, "id": "q2", "question": "Who?", "is_impossible": True}  # whatever answers are plausible
    (tmp_path / "train-v2.0.json").write_text(squad(QUESTION, nothing))
    (tmp_path / "train-v1.1.json").write_text(squad(QUESTION, indent=1))
    splits = reading.read(TASKS["squad2"], str(tmp_path))
    assert [(one.id, one.answers) for one in splits["train"]] == [("q1", (("1905", 25),)), ("q2", ())]
    assert [one.id for one in reading.read(TASKS["squad1"], str(tmp_path))["train"]] == ["q1"]
    # The file with the official name is taken; without one, several files are an error.
    for name in ("train-half-v2.0.json", "dev-a.json"):
        (tmp_path / name).write_text(squad(nothing))
    splits = reading.read(TASKS["squad2"], str(tmp_path))
    assert [one.id for one in splits["train"]] == ["q1", "q2"]
    assert [one.id for one in splits["dev"]] == ["q2"]
    (tmp_path / "dev-b.json").write_text(squad(nothing))
    with pytest.raises(UserError, match=r"several files for split dev of squad2: dev-a\.json, dev-b\.json"):
        reading.read(TASKS["squad2"], str(tmp_path))


def test_a_lone_surrogate_is_one_character(vocabulary, tmp_path):
    """JSON can write it, UTF-8 cannot. The offsets of the text after it stay the same."""
    text = squad(QUESTION).replace("Caf\\u00e9", "Caf\\ud83d")
    assert "\\ud83d" in text
    (tmp_path / "train.json").write_text(text)
    (question,) = reading.read(TASKS["squad1"], str(tmp_path))["train"]
    assert question.passage == PASSAGE.replace("é", "\ufffd")
    OffsetEncoder(vocabulary).encode(question.passage)


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("squad2", "\n" * 16 + '{"data": [', r"train\.json, line 17: broken JSON"),
        ("squad2", json.dumps({"version": "v2.0"}), r"train\.json lacks the key data; check --data and --task"),
        ("squad2", squad({**QUESTION, "question": None}), "question q1: column 'question' is empty"),
        (
            "squad1",
            squad({**QUESTION, "answers": [{"text": "1905", "answer_start": 24}]}, indent=1),
            r"train\.json, question q1: the row says that '1905' is at character 24 .*, where ' 190' is",
        ),
        ("squad1", squad({**QUESTION, "answers": []}), "question q1 has no answer; use --task squad2"),
        ("squad2", squad(QUESTION, QUESTION), "split train has two examples 'q1'; remove one"),
        ("squad2", squad({"id": "q1", "question": "When?"}), "split train has examples without a label"),
    ],
)
def test_mistakes_in_squad(task, text, message, tmp_path):
    (tmp_path / "train.json").write_text(text)
    with pytest.raises(UserError, match=message):
        reading.read(TASKS[task], str(tmp_path))


RACE = {
    "article": "A passage.",
    "questions": ["Who _ ?", "Why?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
    "answers": ["B", "D"],
}


def test_race(tmp_path):
    for level, number in (("high", 10), ("high", 9), ("middle", 1)):
        record = {**RACE, "id": f"{level}{number}.txt"}
        write(tmp_path / "official" / "train" / level / f"{number}.txt", json.dumps(record))
    write(tmp_path / "lines" / "train.jsonl", json.dumps(RACE), "", json.dumps({**RACE, "id": "middle3.txt"}))
    found = reading.read(TASKS["race"], str(tmp_path / "official"))["train"]
    assert [one.id for one in found] == ["high9-0", "high9-1", "high10-0", "high10-1", "middle1-0", "middle1-1"]
    assert [one.level for one in found] == ["high"] * 4 + ["middle"] * 2
    assert [one.label for one in found[:2]] == [1, 3]
    lines = reading.read(TASKS["race"], str(tmp_path / "lines"))["train"]
    assert [(one.id, one.level) for one in lines] == [
        ("train-1-0", ""), ("train-1-1", ""), ("middle3-0", "middle"), ("middle3-1", "middle"),
    ]  # fmt: skip
    assert lines[0].options == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"article": ', r"train\.jsonl, line 2: broken JSON"),
        (json.dumps({**RACE, "answers": ["B", "E"]}), "line 2: the right choice 'E' is none of 'A', 'B'"),
        (json.dumps({**RACE, "answers": ["B"]}), "line 2: the numbers of questions, options and answers differ"),
        (json.dumps({**RACE, "questions": "ab"}), "line 2 has questions = 'ab', which should be a valid"),
    ],
)
def test_mistakes_in_race(record, message, tmp_path):
    write(tmp_path / "train.jsonl", json.dumps(RACE), record)
    with pytest.raises(UserError, match=message):
        reading.read(TASKS["race"], str(tmp_path))


def save(directory, features=None, **splits):
    """Saves a data set with these columns in each split, and returns its directory."""
    features = None if features is None else datasets.Features(features)
    made = {split: datasets.Dataset.from_dict(columns, features) for split, columns in splits.items()}
    datasets.DatasetDict(made).save_to_disk(directory)
    return str(directory)


def test_data_sets_of_glue(tmp_path):
    alone = datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [0, 1]})
    alone.save_to_disk(tmp_path / "alone")
    assert set(reading.read(TASKS["sst2"], str(tmp_path / "alone"))) == {"train"}
    names, text = ["entailment", "neutral", "contradiction"], datasets.Value("string")
    features = {"premise": text, "hypothesis": text, "label": datasets.ClassLabel(names=names)}
    texts = {"premise": ["p", "q", "r"], "hypothesis": ["h"] * 3}
    train, test = texts | {"label": [1, 0, 2]}, texts | {"label": [-1] * 3, "idx": [40, 41, 42]}
    place = save(tmp_path / "saved", None, train=train, validation_matched=train, test_matched=test)
    splits = reading.read(TASKS["mnli"], place)
    assert [one.label for one in splits["train"]] == [2, 1, 0]  # numbers are those of the data set "glue"
    assert set(splits) == {"train", "dev_matched", "test_matched"}
    assert [(one.id, one.label) for one in splits["test_matched"]] == [("40", None), ("41", None), ("42", None)]
    # Named classes are found by their names, in any order.
    features["label"] = datasets.ClassLabel(names=names[::-1])
    splits = reading.read(TASKS["mnli"], save(tmp_path / "named", features, train=train))
    assert [one.label for one in splits["train"]] == [2, 0, 1]
    scores = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [3.0, 0.5]}
    hidden = scores | {"label": [-1.0, -1.0]}
    splits = reading.read(TASKS["stsb"], save(tmp_path / "numbers", None, train=scores, test=hidden))
    assert [[one.label for one in splits[split]] for split in ("train", "test")] == [[3.0, 0.5], [None, None]]


def test_data_sets_of_squad_and_race(tmp_path):
    asked = {"id": ["q1"], "question": ["When?"], "context": [PASSAGE]}
    answers = [{"text": ["1905"], "answer_start": [25]}]
    (one,) = reading.read(TASKS["squad2"], save(tmp_path / "squad", None, train=asked | {"answers": answers}))["train"]
    assert (one.id, one.answers) == ("q1", (("1905", 25),))
    wrong = save(tmp_path / "wrong", None, train=asked | {"answers": [{"text": [1905], "answer_start": [25]}]})
    with pytest.raises(UserError, match=r"wrong, split train, row 0: the answer 1905 is no text"):
        reading.read(TASKS["squad2"], wrong)
    rows = {"example_id": ["high1.txt"] * 2, "article": ["A"] * 2, "question": ["Who _ ?", "Why?"]}
    rows |= {"options": [["a", "b", "c", "d"]] * 2, "answer": ["B", ""]}
    found = reading.read(TASKS["race"], save(tmp_path / "race", None, test=rows))["test"]
    assert [(one.id, one.level, one.label) for one in found] == [("high1-0", "high", 1), ("high1-1", "high", None)]


def test_a_data_set_that_cannot_be_opened(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"holds no official file of rte, and `datasets` cannot open it"):
        reading.read(TASKS["rte"], str(tmp_path))
    with pytest.raises(UserError, match=r"nowhere does not exist; name a directory, or a data set"):
        reading.read(TASKS["rte"], str(tmp_path / "nowhere"))


def test_names_on_the_hub(monkeypatch):
    """The subset is the task's, the only one, or RACE's with both levels; "glue" also has the diagnostic set."""
    asked = []
    rows = datasets.Dataset.from_dict({"premise": ["p"], "hypothesis": ["h"], "label": [-1], "idx": [9]})

    def load(name, subset):
        asked.append((name, subset))
        return datasets.DatasetDict({"test": rows} if subset == "ax" else {"test_matched": rows})

    subsets = {"glue": ["mnli", "rte", "ax"], "someone/mnli": ["default"], "race": ["all", "high", "middle"]}
    monkeypatch.setattr(datasets, "get_dataset_config_names", subsets.__getitem__)
    monkeypatch.setattr(datasets, "load_dataset", load)
    splits = reading.read(TASKS["mnli"], "glue")
    assert {split: examples[0].id for split, examples in splits.items()} == {"test_matched": "9", "diagnostic": "9"}
    assert set(reading.read(TASKS["mnli"], "someone/mnli")) == {"test_matched"}
    with pytest.raises(UserError, match="no column"):
        reading.read(TASKS["race"], "race")
    assert asked == [("glue", "mnli"), ("glue", "ax"), ("someone/mnli", None), ("race", "all")]


def test_hidden_files_are_no_passages_and_a_fifo_is_refused(tmp_path):
    write(tmp_path / "race" / "train" / "high" / "1.txt", json.dumps(RACE))
    (tmp_path / "race" / "train" / "high" / "._1.txt").write_bytes(b"\0\5\x16\7")
    assert len(reading.read(TASKS["race"], str(tmp_path / "race"))["train"]) == 2
    datasets.DatasetDict({"train": datasets.Dataset.from_dict({"a": [1]})}).save_to_disk(tmp_path / "saved")
    (arrow,) = (tmp_path / "saved").rglob("*.arrow")
    arrow.unlink()
    os.mkfifo(arrow)
    with pytest.raises(UserError, match=r"data-00000-of-00001\.arrow is no regular file; remove it"):
        reading.read(TASKS["rte"], str(tmp_path / "saved"))


@pytest.mark.parametrize("name", ["reviews_heldout.csv", "data/My-Dev.csv", "latest.csv"])
def test_files_to_choose_or_report_on_are_not_trained_on(tmp_path, name):
    """`datasets` takes all files of a directory as "train" if the name of none says train."""
    for file in ("reviews.csv", name):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("sentence,label\na,0\nb,1\n")
    if name == "latest.csv":
        assert len(reading.read(TASKS["sst2"], str(tmp_path))["train"]) == 4
    else:
        with pytest.raises(UserError, match=f"{name} would be trained on; name the files train, dev and test"):
            reading.read(TASKS["sst2"], str(tmp_path))
