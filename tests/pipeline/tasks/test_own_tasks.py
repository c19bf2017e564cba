"""Tasks on own files: labels are found, examples are read, and every mistake is one line."""

import dataclasses
import json
import re

import datasets
import pytest

from common.errors import UserError
from common.files.json_files import check_as
from pipeline.settings import finetune_flags
from pipeline.tasks import own_tasks
from pipeline.tasks.registry import TASKS
from tests.pipeline.tasks import own_files


def parse(*words):
    return finetune_flags.parse([str(word) for word in ("--init", "x", "--output", "y", *words)])


def read(*words):
    return own_tasks.read(parse(*words).own_data())


def files(directory, train, dev=None, test=None, ending="csv"):
    """Writes the splits as rows of columns; returns the flags that name them."""
    words = []
    for split, columns in (("train", train), ("dev", dev), ("test", test)):
        if columns is not None:
            words += [f"--{split}-file", own_files.write(directory / f"{split}.{ending}", columns)]
    return words


TEXTS = ["a b", "c", "d e f", "g"]


SPELLINGS = ["caf\u00e9", "cafe\u0301 ", " tea", "tea"]  # of two words
OF_THREE = (("a", "b", "c"), [(1, 0), (), (2,), (0,)])
CHOSEN, TWO = "multiple-choice --choice-columns one two", {"one": TEXTS, "two": TEXTS[::-1]}


@pytest.mark.parametrize(
    ("words", "columns", "ending", "labels", "numbers"),
    [
        ("classification", {"label": ["pos", "neg", "pos", "neg"]}, "jsonl", ("neg", "pos"), [1, 0, 1, 0]),
        ("classification", {"label": [10, 9, 1, 1]}, "jsonl", ("1", "9", "10"), [2, 1, 0, 0]),  # by number
        ("classification", {"label": [1.0, 0.0, 1.0, 0.0]}, "jsonl", ("0", "1"), [1, 0, 1, 0]),
        ("classification", {"label": [True, False, True, True]}, "jsonl", ("false", "true"), [1, 0, 1, 1]),
        ("classification", {"label": SPELLINGS}, "jsonl", ("caf\u00e9", "tea"), [0, 0, 1, 1]),
        (
            "multi-label",
            {"labels": [[name] for name in SPELLINGS]},
            "jsonl",
            ("caf\u00e9", "tea"),
            [(0,), (0,), (1,), (1,)],
        ),
        ("multi-label", {"labels": [["b", "a"], [], ["c"], ["a"]]}, "jsonl", *OF_THREE),
        ("multi-label", {"labels": ["b, a", "", "c", "a"]}, "csv", *OF_THREE),
        ("multi-label", {"labels": ['["b", "a"]', "[]", "c", "a"]}, "tsv", *OF_THREE),
        # Numbers stay names where there are not as many in each row.
        ("multi-label", {"labels": [[0, 1], [1], [], [2, 0]]}, "jsonl", ("0", "1", "2"), [(0, 1), (1,), (), (2, 0)]),
        (CHOSEN, TWO | {"label": [0, 1, 1, 0]}, "jsonl", ("one", "two"), [0, 1, 1, 0]),
        (CHOSEN, TWO | {"label": ["A", "B", "B", "A"]}, "csv", ("one", "two"), [0, 1, 1, 0]),
        (CHOSEN, TWO | {"label": ["one", "two", "two", "one"]}, "tsv", ("one", "two"), [0, 1, 1, 0]),
        (
            "multiple-choice --choice-columns choices",
            {"choices": [["x", "y", "z"]] * 4, "label": ["2", 0, 1, "C"]},
            *("jsonl", ("0", "1", "2"), [2, 0, 1, 2]),
        ),
    ],
)
def test_labels_are_found_in_training(tmp_path, words, columns, ending, labels, numbers):
    task, splits = read("--task", *words.split(), *files(tmp_path, {"text": TEXTS} | columns, ending=ending))
    assert (task.labels, [example.label for example in splits["train"]]) == (labels, numbers)
    metrics = {"classification": ("accuracy", "f1_macro"), "multi-label": ("f1_micro", "f1_macro", "exact_match")}
    of_two = ("matthews",) if words == "classification" and len(labels) == 2 else ()
    assert task.metrics == (*metrics.get(words, ("accuracy",)), *of_two)


def test_a_directory_and_its_splits(tmp_path):
    columns = {"text": TEXTS, "label": ["x", "y", "x", "y"]}
    for name in ("train.csv", "validation.jsonl", "test.parquet"):
        own_files.write(tmp_path / name, columns)
    (tmp_path / "validation.jsonl").rename(tmp_path / "Validation.jsonl")
    (tmp_path / "notes.txt").write_text("of a person")
    _, splits = read("--task", "classification", "--data", tmp_path)
    assert {split: len(examples) for split, examples in splits.items()} == {"train": 4, "dev": 4, "test": 4}
    own_files.write(tmp_path / "dev.csv", columns)
    with pytest.raises(UserError, match=r"has Validation\.jsonl and dev\.csv, and both are the split dev; keep one"):
        read("--task", "classification", "--data", tmp_path)


def test_a_data_set_of_the_library(tmp_path):
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["pos", "neg"])})
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 0, 1]}, features=features)
    datasets.DatasetDict(train=rows, validation=rows).save_to_disk(str(tmp_path / "saved"))
    task, splits = read("--task", "classification", "--data", tmp_path / "saved")
    assert task.labels == ("pos", "neg")  # in the order of the data set
    assert [example.label for example in splits["dev"]] == [0, 1, 0, 1]
    _, splits = read("--task", "classification", "--data", tmp_path / "saved" / "train")
    assert set(splits) == {"train"}  # one split is the training split
    blank = datasets.ClassLabel(names=["pos", "pos "])
    datasets.DatasetDict(train=rows.cast_column("label", blank)).save_to_disk(str(tmp_path / "blank"))
    with pytest.raises(UserError, match="differ in blanks or spelling only: 'pos', 'pos '; rename one"):
        read("--task", "classification", "--data", tmp_path / "blank")


def test_a_data_set_on_the_hub(monkeypatch):
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": ["x", "y", "x", "y"]})
    asked = []

    def load(name, subset):
        asked.append((name, subset))
        return datasets.DatasetDict(train=rows, validation=rows, unsupervised=rows)

    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda name: ["plain", "other"])
    monkeypatch.setattr(datasets, "load_dataset", load)
    task, splits = read("--task", "classification", "--data", "someone/reviews", "--subset", "plain")
    assert (task.labels, set(splits), asked) == (("x", "y"), {"train", "dev"}, [("someone/reviews", "plain")])
    with pytest.raises(UserError, match="--subset third is none of plain, other"):
        read("--task", "classification", "--data", "someone/reviews", "--subset", "third")


PASSAGE = "The party of art was an art."
ASKED = {"question": ["What?"], "context": [PASSAGE]}
NONE = float("nan")


def answered(given):
    """The flags and columns of a question with these further columns."""
    return "question-answering", ASKED | {name: [value] for name, value in given.items()}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"answer": "art"}, (("art", 13),)),  # "art" is a part of "party"
        ({"answer": "ar", "answer_start": ""}, (("ar", 5),)),
        ({"answer": ["art", "an art"]}, (("art", 13), ("an art", 21))),
        ({"answer": [{"text": "art", "answer_start": 24}]}, (("art", 24),)),
        ({"answer": [{"text": "an"}]}, (("an", 21),)),
        ({"answer": {"text": ["party"], "answer_start": []}}, (("party", 4),)),
        ({"answer": {"text": ["party"]}}, (("party", 4),)),
        ({"answer": {"text": ["an", "ar"], "answer_start": [21, NONE]}}, (("an", 21), ("ar", 5))),
        ({"answer": {"text": ["art", "an"], "answer_start": [None, 21]}}, (("art", 13), ("an", 21))),
        ({"answer": {"text": "art", "answer_start": 24}}, (("art", 24),)),
        ({"answer": ["art"], "answer_start": []}, (("art", 13),)),
        ({"answer": "art", "answer_start": [24]}, (("art", 24),)),
        ({"answer": "art", "answer_start": NONE}, (("art", 13),)),
        ({"answer": "art", "answer_start": " "}, (("art", 13),)),
        ({"answer": "art", "answer_start": 24.0}, (("art", 24),)),
        ({"answer": [""]}, ()),
        ({"answer": " "}, ()),
        ({"answer": {"text": [""], "answer_start": [-1]}}, ()),
        ({"answer": {"text": [], "answer_start": []}}, ()),
        ({"answer": {"text": None, "answer_start": None}}, ()),
        ({"answer": [{"text": "", "answer_start": -1}]}, ()),
        ({"answer": "", "answer_start": 0}, ()),
    ],
)  # fmt: skip
def test_the_answers_of_a_row(tmp_path, given, found):
    name, columns = answered(given)
    task, splits = read("--task", name, *files(tmp_path, columns, columns, ASKED, ending="jsonl"))
    kind, score = ("spans", "f1") if found else ("conditioned_spans", "best_f1")
    assert (task.kind.name, task.labels, task.score) == (kind, (), score)
    assert [splits[split][0].label for split in ("train", "dev", "test")] == [found, found, None]


def test_a_question_without_the_key_of_the_answer_is_a_mistake(tmp_path):
    """A typo in one row would make the task one with questions that have no answer."""
    name, columns = answered({"answer": "art"})
    files(tmp_path, columns, ending="jsonl")
    train = tmp_path / "train.jsonl"
    row = json.loads(train.read_text())
    typo = {("answers" if key == "answer" else key): value for key, value in row.items()}
    train.write_text(f"{json.dumps(row)}\n{json.dumps(typo)}\n")
    with pytest.raises(UserError, match="line 2: it has no 'answer', as other rows have; leave it empty"):
        read("--task", name, "--train-file", train)


GOOD = {"text": TEXTS, "label": ["x", "y", "x", "y"]}
TAGS = {"tokens": [["a", "b"], ["c"]], "tags": [["O", "B-X"], ["O"]]}
NUMBERED = {"text": TEXTS, **{str(number): TEXTS for number in (1, 2, 3)}, "label": ["3", "1", "2", "0"]}
CHOICES = {"text": ["a", "b"], "choices": [["x", "y"], ["x", "z"]], "label": [0, 1]}


@pytest.mark.parametrize(
    ("words", "train", "dev", "message"),
    [
        ("classification", {"review": TEXTS, "label": GOOD["label"]}, None,
         "train.jsonl has no column 'text'; it has review, label; check --task; of an own task, name the column"),
        ("classification", GOOD | {"label": ["x"] * 4}, None,
         "column 'label' holds only the label 'x', and a task needs 2 to 1,000; check --label-column"),
        ("classification", GOOD | {"text": ["a", "b", " ", "d"]}, None, "line 3: column 'text' is empty; fill it"),
        ("classification", GOOD | {"label": ["x", ["y"], "y", "x"]}, None,
         "line 2: column 'label' holds ['y'], which is no single label; correct it"),
        ("classification", GOOD, GOOD | {"label": ["x", "z", "y", "y"]},
         "dev.jsonl, line 2: the label 'z' is none of 'x', 'y'; correct it"),
        ("regression", GOOD, None, "line 1: column 'label' holds 'x', which is no number; correct it"),
        ("regression", GOOD | {"label": [3] * 4}, None, "column 'label' holds one number only; name another column"),
        *(
            ("regression", GOOD | {"label": ["1", "-2.5e-1", "+.5", label]}, None,
             f"line 4: column 'label' holds {label!r}, which is no number")
            for label in ("1_0", "٣", "1e", "0x1f", "nan", "inf", "--1", 1e20)  # whose square overflows in fp32
        ),
        ("tagging", TAGS | {"tags": [["O", "B-X"], ["O", "O"]]}, None, "line 2: 1 tokens, but 2 tags; correct the row"),
        ("multiple-choice --choice-columns choices", CHOICES | {"choices": [["x", "y"], ["x", "y", "z"]]}, None,
         "line 2: 3 choices instead of 2; give every row as many"),
        ("multi-label", GOOD | {"labels": [["x"], "[", ["y"], []]}, None, "line 2: column 'labels' holds '['"),
        *(
            (*answered(given), None, message)
            for given, message in (
                ({"answer": "arts"}, "line 1: the answer 'arts' is not in column 'context'; copy it from there"),
                ({"answer": "art", "answer_start": 12}, "is at character 12 of its passage, where ' ar' is; correct"),
                ({"answer": {"text": ["art", "an"], "answer_start": [24]}}, "2 answers, but 1 of answer_start; give"),
                ({"answer": {"text": ["art"], "answer_start": [24, 13]}}, "1 answers, but 2 of answer_start"),
                ({"answer": {"text": [], "answer_start": [24]}}, "0 answers, but 1 of answer_start"),
                ({"answer": ["art", "an"], "answer_start": 24}, "2 answers, but 1 of answer_start"),
                ({"answer": {"texts": ["art"], "answer_start": [24]}}, 'has no "text"; correct it'),
                ({"answer": [{"answer": "art"}]}, 'has no "text"; correct it'),
                ({"answer": ["art", ""]}, "the answer '' is no text; correct it, or leave all empty"),
                *(
                    ({"answer": "art", "answer_start": place}, f"is {place!r}, which is no whole number")
                    for place in (24.5, True, "2_4", "٢٤")
                ),
            )
        ),
        ("multiple-choice --choice-columns choices", CHOICES | {"label": [0, 2]}, None,
         "line 2: the right choice '2' is none of '0', '1', nor a number from 0 to 1, nor"),
        # Beside a column 1, the number 1 could be that column's or that of the second one.
        ("multiple-choice --choice-columns 1 2 3", NUMBERED, None,
         "line 4: the right choice '0' is none of '1', '2', '3', nor a letter"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_line(tmp_path, words, train, dev, message):
    with pytest.raises(UserError, match=re.escape(message)):
        read("--task", *words.split(), *files(tmp_path, train, dev, ending="jsonl"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--task classification", "needs --train-file or --data, and none of them is given; give one of them"),
        ("--task classification --dev-file a.csv", "needs --train-file beside the other files"),
        ("--task multiple-choice --train-file a.csv", "needs --choice-columns, one for each choice or one with lists"),
        (
            "--task pairs --train-file a.csv --text-column a --label-column a",
            "one column has two uses: a, text_pair, a",
        ),
        ("--task classification --train-file a.csv --task-name sst2", "--task-name sst2 is a task of the paper"),
        ("--task sst2 --data a --text-column b", "--text-column is for tasks on own files"),
        ("--task clasification --data a", "there is no task 'clasification'; did you mean classification?"),
    ],
)
def test_flags_that_do_not_fit_are_one_line(words, message):
    with pytest.raises(UserError, match=re.escape(message)):
        parse(*words.split())


def test_a_task_comes_back_from_its_record(tmp_path):
    task, _ = read("--task", "classification", "--task-name", "reviews", *files(tmp_path, GOOD))
    record = own_tasks.record_of(task)
    content = json.loads(json.dumps(dataclasses.asdict(record)))
    assert check_as(content, own_tasks.OwnRecord, "settings.json", "restore it") == record
    assert own_tasks.task_of(task.name, record, tmp_path) == task
    assert own_tasks.task_of("sst2", None, tmp_path) is TASKS["sst2"]
    assert own_tasks.record_of(TASKS["sst2"]) is None
    for damaged, message in (
        (None, "there is no task 'reviews'"),
        (dataclasses.replace(record, labels=("one",)), "needs at least two labels; it has 1"),
        (dataclasses.replace(record, kind="guess"), "has kind 'guess'"),
    ):
        with pytest.raises(UserError, match=message):
            own_tasks.task_of("reviews", damaged, tmp_path)


def test_hidden_labels_of_a_test_file(tmp_path):
    hidden = GOOD | {"label": ["x", "", "y", "x"]}
    _, splits = read("--task", "classification", *files(tmp_path, GOOD, test=hidden))
    assert [example.label for example in splits["test"]] == [0, None, 1, 0]
    numbers, hidden = ({"text": TEXTS, "label": label} for label in ([1, 2, 3, 4], [1.5, None, float("nan"), 2]))
    _, splits = read("--task", "regression", *files(tmp_path, numbers, test=hidden, ending="jsonl"))
    assert [example.label for example in splits["test"]] == [1.5, None, None, 2.0]


NAMED = r'name the labels that a text has, such as \["sports", "arts"\]'


@pytest.mark.parametrize(
    "labels",
    [
        [[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 1, 0]],
        [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]],
        [[0.25, 0.75], [0.5, 0.5], [0.0, 1.0], [1.0, 0.0]],
        [[True, False], [False, True], [True, False], [False, True]],
        [["0", "1"], ["1", "0"], ["0", "1"], ["1", "0"]],
        [[0], [1], [0], [1]],
        ["0,1", "1,0", "0,1", "1,0"],
        ["[0, 1]", "[1, 0]", "[0, 1]", "[1, 0]"],
        ["True, False", "False, True", "True, False", "False, True"],
        ["0 1 0", "1 0 0", "0 0 1", "1 1 0"],
        ["0;1", "1;0", "0;1", "1;0"],
    ],
)
def test_a_number_for_each_label_is_no_list_of_labels(tmp_path, labels):
    words = files(tmp_path, {"text": TEXTS, "labels": labels}, ending="parquet")
    with pytest.raises(UserError, match=f"column 'labels' holds values such as .*{NAMED}"):
        read("--task", "multi-label", *words)


@pytest.mark.parametrize(
    ("rows", "ending"),
    [
        ([[0, 1, 0], [1.0, 0.0, 0.0], [0, 0, 0], [True, True, False]], "jsonl"),
        (["0,1,0", "1 0 0", "[0, 0, 0]", "true; TRUE; false"], "csv"),
    ],
)
def test_a_0_or_1_for_each_of_named_labels(tmp_path, rows, ending):
    words = ["--task", "multi-label", "--label-names", "toxic", "obsce\u0301ne", " insult "]
    given, hidden = {"text": TEXTS, "labels": rows}, {"text": TEXTS, "labels": ["", None, *rows[2:]]}
    task, splits = read(*words, *files(tmp_path, given, test=hidden, ending=ending))
    assert task.labels == ("toxic", "obsc\u00e9ne", "insult")
    assert [example.label for example in splits["train"]] == [(1,), (0,), (), (0, 1)]
    assert [example.label for example in splits["test"]] == [None, None, (), (0, 1)]
    for wrong in ("0,1", "0,1,0,1", "0,0.5,1", "0,2,1", "toxic", "toxic,obscene,insult", ""):
        with pytest.raises(UserError, match=r"line 5: column 'labels' (holds .*--label-names 3 labels|is empty)"):
            read(*words, *files(tmp_path, {"text": TEXTS, "labels": ["0,1,0"] * 3 + [wrong]}, ending="csv"))


@pytest.mark.parametrize(
    "words",
    [
        ["multi-label", "a"],
        ["multi-label", "a", "b", "a "],
        ["multi-label", "cafe\u0301", "caf\u00e9"],
        ["multi-label", " ", "b"],
        ["multi-label", "caf\udce9", "b"],
        ["classification", "a", "b"],
    ],
)
def test_names_of_labels_that_are_refused(tmp_path, words):
    task, *names = words
    with pytest.raises(UserError, match=r"^--label-names"):
        read("--task", task, "--label-names", *names, *files(tmp_path, GOOD))


def test_a_label_is_named_once_in_a_row(tmp_path):
    good = {"text": TEXTS, "labels": [["a"], ["a", "b"], [], ["b"]]}
    for labels in (["b", "a", "b "], "a, b, a", ["a", "a"]):
        wrong = {"text": TEXTS, "labels": [*good["labels"][:3], labels]}
        for splits in ((wrong,), (good, wrong)):
            words = files(tmp_path, *splits, ending="jsonl")
            with pytest.raises(UserError, match=rf"line 4: column 'labels' has the label '[ab]' twice; {NAMED}"):
                read("--task", "multi-label", *words)


def test_long_values_are_not_quoted_in_full(tmp_path):
    long = "x" * 900_000
    for words, columns, more in (
        ("classification", GOOD, GOOD | {"label": [long, "x", "y", "y"]}),
        ("classification", GOOD | {"text": ["a", "b", [long], "c"]}, None),
        ("regression", GOOD | {"label": [1, 2, 3, long]}, None),
        ("classification", {long: TEXTS, "label": [1, 2, 3, 1]}, None),
        ("question-answering", ASKED | {"answer": [long]}, None),
        ("question-answering", ASKED | {"answer": ["art"], "answer_start": [long]}, None),
        ("multi-label", GOOD | {"labels": [[long, long], ["x"], ["y"], []]}, None),
        ("multiple-choice --choice-columns choices", CHOICES | {"label": [0, long]}, None),
    ):
        with pytest.raises(UserError) as error:
            read("--task", *words.split(), *files(tmp_path, columns, more, ending="jsonl"))
        assert len(str(error.value)) <= 2100
