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


def exact(prediction, answer):
    return words(prediction) == words(answer)


def overlap(prediction, answer, version):
    predicted, truth = words(prediction), words(answer)
    if version == "2.0" and (not predicted or not truth):
        return 1.0 if predicted == truth else 0.0
    left, common = list(truth), 0
    for word in predicted:
        if word in left:
            left.remove(word)
            common += 1
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(truth)
    return 2 * precision * recall / (precision + recall)


def evaluate_1(predictions, gold):
    """Exact match and F1 of the 1.1 script."""
    totals = [0.0, 0.0]
    for question, answers in gold.items():
        totals[0] += max(exact(predictions[question], answer) for answer in answers)
        totals[1] += max(overlap(predictions[question], answer, "1.1") for answer in answers)
    return {"exact": 100 * totals[0] / len(gold), "f1": 100 * totals[1] / len(gold)}


def evaluate_2(predictions, gold, null_odds):
    """The metrics of the 2.0 script. Every threshold is tried, which gives the same if no two odds are equal."""
    accepted = {question: [a for a in answers if words(a)] for question, answers in gold.items()}
    raw = {}
    for question, answers in accepted.items():
        prediction = predictions[question]
        raw[question] = (
            max(float(exact(prediction, answer)) for answer in answers or [""]),
            max(overlap(prediction, answer, "2.0") for answer in answers or [""]),
        )

    def thresholded(question, index, threshold):
        if null_odds[question] > threshold:
            return 0.0 if gold[question] else 1.0
        return raw[question][index]

    found = {"total": len(gold)}
    for index, name in enumerate(("exact", "f1")):
        scores = {question: thresholded(question, index, 0.0) for question in gold}
        found[name] = 100 * sum(scores.values()) / len(gold)
        for part, wanted in (("HasAns", True), ("NoAns", False)):
            chosen = [scores[question] for question in gold if bool(gold[question]) == wanted]
            if chosen:
                found[f"{part}_{name}"] = 100 * sum(chosen) / len(chosen)
                found[f"{part}_total"] = len(chosen)

        def searched(threshold, index=index):
            """The score with every question below the threshold answered; an article alone counts as a word."""
            total = 0.0
            for question in gold:
                if null_odds[question] > threshold or (not gold[question] and not predictions[question]):
                    total += not gold[question]
                elif gold[question]:
                    total += raw[question][index]
            return 100 * total / len(gold)

        none = 100 * sum(not answers for answers in gold.values()) / len(gold)
        best, at = none, 0.0
        for threshold in sorted(null_odds.values()):
            if searched(threshold) > best + 1e-9:
                best, at = searched(threshold), threshold
        found |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return found
