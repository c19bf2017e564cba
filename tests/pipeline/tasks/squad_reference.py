"""A second implementation of SQuAD's metrics: character by character, and with words removed from a list."""

import itertools

ASCII_MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def words(text):
    kept = [character for character in text.lower() if character not in ASCII_MARKS]
    parts = []
    for is_word, run in itertools.groupby(kept, key=str.isalnum):
        run = "".join(run)
        parts.append(" " if is_word and run in ("a", "an", "the") else run)
    return "".join(parts).split()


def overlap(prediction, answer, version):
    predicted, truth = words(prediction), words(answer)
    if version == 2 and (not predicted or not truth):
        return float(predicted == truth)
    left, common = list(truth), 0
    for word in predicted:
        if word in left:
            left.remove(word)
            common += 1
    return common and 2 * common / (len(predicted) + len(truth))


def evaluate(predictions, gold, odds=None):
    """The metrics of the script of version 1.1, and with null odds of 2.0.

    Every threshold is tried, which gives the same as the script if no two odds are equal.
    """
    version = 1 if odds is None else 2
    raw = {}
    for question, answers in gold.items():
        accepted = [a for a in answers if version == 1 or words(a)] or [""]
        exact = max(float(words(predictions[question]) == words(answer)) for answer in accepted)
        raw[question] = exact, max(overlap(predictions[question], answer, version) for answer in accepted)

    def score(question, index, threshold):
        return raw[question][index] if not odds or odds[question] <= threshold else float(not gold[question])

    found = {"total": len(gold), "missing": 0}
    for index, name in enumerate(("exact", "f1")):
        scores = {question: score(question, index, 0.0) for question in gold}
        found[name] = 100 * sum(scores.values()) / len(gold)
        if version == 1:
            continue
        for part, wanted in (("HasAns", True), ("NoAns", False)):
            if chosen := [scores[question] for question in gold if bool(gold[question]) == wanted]:
                found |= {f"{part}_{name}": 100 * sum(chosen) / len(chosen), f"{part}_total": len(chosen)}
        best, at = sum(not answers for answers in gold.values()), 0.0
        for threshold in sorted(odds.values()):
            # An article alone, as the answer to an unanswerable question, counts as a word.
            total = sum(
                score(question, index, threshold) if gold[question] or not predictions[question]
                else odds[question] > threshold
                for question in gold
            )  # fmt: skip
            if total > best + 1e-9:
                best, at = total, threshold
        found |= {f"best_{name}": 100 * best / len(gold), f"best_{name}_thresh": at}
    return found
