"""The official files of GLUE, SQuAD and RACE, data sets of the library, and the errors for broken files."""

import json
import os

import datasets
import pytest

from common.errors import UserError
from data_prep.text.text_encoder import OffsetEncoder
from pipeline.tasks.files import reading
from pipeline.tasks.registry import TASKS
from tests.pipeline.tasks import task_files

PASSAGE = "The Café was — opened in 1905."
QUESTION = {"id": "q1", "question": "When?", "answers": [{"text": "1905", "answer_start": 25}]}


def squad(*questions, **options):
    paragraphs = [{"context": PASSAGE, "qas": list(questions)}]
    return json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}, **options)


RACE = {
    "article": "A passage.",
    "questions": ["Who _ ?", "Why?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
    "answers": ["B", "D"],
}


def race(**changes):
    return json.dumps(RACE | changes) + "\n"


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
        ("race", race() + '{"article": ', r"train\.jsonl, line 2: broken JSON"),
        ("race", race() + race(answers=["B", "E"]), "line 2: the right choice 'E' is none of 'A', 'B'"),
        ("race", race() + race(answers=["B"]), "line 2: the numbers of questions, options and answers differ"),
        ("race", race() + race(questions="ab"), "line 2 has questions = 'ab', which should be a valid"),
    ],
)
def test_mistakes_in_squad_and_race(task, text, message, tmp_path):
    (tmp_path / ("train.jsonl" if task == "race" else "train.json")).write_text(text)
    with pytest.raises(UserError, match=message):
        reading.read(TASKS[task], str(tmp_path))


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


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def tabs(*columns):
    return "\t".join(columns)


MNLI_HEADER = tabs("index", "promptID", "pairID", "genre", "a", "b", "c", "d", "sentence1", "sentence2")

GLUE_FILES = {
    "cola": {
        "CoLA/train.tsv": [tabs("gj04", "1", "", 'He said "no".'), tabs("cj99", "0", "*", "As you eat the most.")],
        "CoLA/test.tsv": [tabs("index", "sentence"), tabs("7", "Bill whistled.")],
    },
    "sst2": {
        "SST-2/train.tsv": [tabs("sentence", "label"), tabs('a " b ', "1"), tabs("one line\u2028still", "0")],
        "SST-2/test.tsv": [tabs("index", "sentence"), tabs("3", "uneasy .")],
    },
    "mrpc": {
        "MRPC/train.tsv": [
            "\ufeff" + tabs("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            tabs("1", "2", "3", 'He "said', "She said") + "\r",
            tabs("0", "2", "3", "x", "y"),
        ],
        "MRPC/test.tsv": [tabs("index", "#1 ID", "#2 ID", "#1 String", "#2 String"), tabs("9", "1", "2", "x", "y")],
    },
    "stsb": {
        "STS-B/train.tsv": [
            tabs("index", "genre", "filename", "year", "old", "s1", "s2", "sentence1", "sentence2", "score"),
            tabs("0", "g", "f", "y", "o", "n", "n", "A man", "A woman", "3.800"),
            tabs("1", "g", "f", "y", "o", "n", "n", "A", "B", "0"),
        ],
    },
    "qqp": {
        "QQP/train.tsv": [
            tabs("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
            tabs("5", "1", "2", "How?", "Why?", "0"),
            tabs("6", "a row that lost its columns"),
            tabs("7", "1", "2", "Who?", "What?", "1"),
        ],
        "QQP/test.tsv": [tabs("id", "question1", "question2"), tabs("12", "How?", "Why?")],
    },
    "mnli": {
        "MNLI/train.tsv": [
            tabs(MNLI_HEADER, "label1", "gold_label"),
            tabs("0", "1", "2", "g", "", "", "", "", "first", "second", "neutral", "neutral"),
            tabs("1", "1", "2", "g", "", "", "", "", "first", "second", "entailment", "contradiction"),
        ],
        "MNLI/dev_mismatched.tsv": [
            tabs(MNLI_HEADER, "label1", "label2", "gold_label"),
            tabs("0", "1", "2", "g", "", "", "", "", "x", "y", "neutral", "neutral", "entailment"),
        ],
        "MNLI/test_matched.tsv": [MNLI_HEADER, tabs("4", "1", "2", "g", "", "", "", "", "x", "y")],
        "diagnostic/diagnostic.tsv": [tabs("index", "sentence1", "sentence2"), tabs("2", "x", "y")],
    },
}  # fmt: skip

# (first, second, label) of the training examples, then (id, first) of the test ones
WANTED = {
    "cola": ([('He said "no".', None, 1), ("As you eat the most.", None, 0)], {"test": ("7", "Bill whistled.")}),
    "sst2": ([('a " b ', None, 1), ("one line\u2028still", None, 0)], {"test": ("3", "uneasy .")}),
    "mrpc": ([('He "said', "She said", 1), ("x", "y", 0)], {"test": ("9", "x")}),
    "stsb": ([("A man", "A woman", 3.8), ("A", "B", 0.0)], {}),
    "qqp": ([("How?", "Why?", 0), ("Who?", "What?", 1)], {"test": ("12", "How?")}),
    "mnli": (
        [("first", "second", 2), ("first", "second", 0)],
        {"dev_mismatched": ("0", "x"), "test_matched": ("4", "x"), "diagnostic": ("2", "x")},
    ),
}


@pytest.mark.parametrize("name", list(GLUE_FILES))
def test_glue(name, tmp_path):
    for file, lines in GLUE_FILES[name].items():
        write(tmp_path / file, *lines)
    training, others = WANTED[name]
    for place in (tmp_path, tmp_path / next(iter(GLUE_FILES[name])).split("/")[0]):
        splits = reading.read(TASKS[name], str(place))
        assert [(one.first, one.second, one.label) for one in splits["train"]] == training
        # Earlier runs know examples by these numbers, which rows that are left out have too.
        assert [one.id for one in splits["train"]] == (["0", "2"] if name == "qqp" else ["0", "1"])
        assert set(splits) == {"train", *others}
        for split, (identity, first) in others.items():
            assert (splits[split][0].id, splits[split][0].first) == (identity, first)


@pytest.mark.parametrize(
    ("name", "file", "lines", "message"),
    [
        ("sst2", "train.tsv", ["sentence\tlabel", "fine\t1", "odd\t2"], r"line 3: the label '2' is none of '0', '1';"),
        ("sst2", "train.tsv", ["sentence\tlabels", "fine\t1"], r"has no column 'label'; it"),
        ("rte", "dev.tsv", ["index\tsentence1\tsentence2\tlabel", "0\tx"], r"dev\.tsv, line 2: fewer than 4 columns"),
        ("rte", "train.tsv", ["index\tsentence1\tsentence2\tlabel", "0\tx\tbroken\ttail\tentailment"],
         r"train\.tsv, line 2: 5 cells instead of 4; remove the tab"),
        ("stsb", "train.tsv", ["sentence1\tsentence2\tscore", "x\ty\t5.1"], r"line 2: the score 5\.1 is no number"),
        ("rte", "test.tsv", ["index\tsentence1\tsentence2", "4\tx\ty", "4\tz\tw"], "split test has two examples '4'"),
        ("rte", "test.tsv", ["index\tsentence1\tsentence2", "x7\tx\ty"], "line 2: the index 'x7' is no whole number"),
    ],
)  # fmt: skip
def test_mistakes_in_glue(name, file, lines, message, tmp_path):
    write(tmp_path / file, *lines)
    with pytest.raises(UserError, match=message):
        reading.read(TASKS[name], str(tmp_path))


def test_the_last_line_is_an_example_with_any_line_end(tmp_path):
    for end in ("", "\n", "\r\n", "\n\n\n"):
        (tmp_path / "train.tsv").write_bytes(b"sentence\tlabel\nfine\t1\nbad\t0" + end.encode())
        assert [one.label for one in reading.read(TASKS["sst2"], str(tmp_path))["train"]] == [1, 0]


def test_a_test_file_with_labels_keeps_its_index(tmp_path):
    write(tmp_path / "test.tsv", "sentence1\tsentence2\tlabel\tindex", "x\ty\tentailment\t7")
    (example,) = reading.read(TASKS["rte"], str(tmp_path))["test"]
    assert (example.id, example.label) == ("7", 0)


def test_every_task_reads_its_files(tmp_path):
    task_files.write_all(tmp_path)
    for task in TASKS.values():
        place = {"squad1": "squad", "squad2": "squad", "race": "race"}.get(task.name, "glue")
        splits = reading.read(task, str(tmp_path / place))
        labels = {example.label for example in splits["train"]} if task.labels else set()
        assert {"train", *task.dev_splits} < set(splits)
        assert task.kind.predicts_numbers or labels == set(range(len(task.labels)))
