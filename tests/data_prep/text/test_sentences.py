"""Compares the sentences of texts with those found by hand."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.text.sentences import split_sentences
from tests.data_prep.foreign_pages import WIKIS, Wiki


@given(st.lists(st.sampled_from(["One is here. ", "Two ", "three. ", "\n", "long" * 9]), max_size=40).map("".join))
def test_long_paragraphs_are_cut_at_sentences_or_words(text: str) -> None:
    """Without line breaks, a whole book would be one paragraph."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 30)
        found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    words = text.split()
    assert all(
        word in words for sentence in found for word in sentence.split() if len(word) <= 30 and "long" not in word
    )


@pytest.mark.parametrize("wiki", WIKIS, ids=[wiki.language for wiki in WIKIS])
def test_sentences_of_other_languages(wiki: Wiki) -> None:
    text = ("" if wiki.language in ("ja", "zh") else " ").join(wiki.sentences)
    assert split_sentences(text, wiki.language) == list(wiki.sentences)


CASES = {
    "de": [
        "Am 3. Mai kam Dr. Weiß.|Er blieb z. B. hier, u.a. wegen Nr. 5.",
        "Die 1. Bundesliga ist im 24. Jahrgang.|Sie wohnt im 3. Stock.",
        "Friedrich II. von Preußen starb 1786.|Er war 74.|Der Erbe kam 455 n. Chr. nach Rom.",
        "„Halt!“ rief er.|„Wer da?“|Niemand kam, usw. und so fort.|(Siehe S. 4.)",
    ],
    "fr": [
        "Où va M. Dupont ?|Mgr. Le Roux le sait.|Elle part av. J.-C. de Rome.",
        "« Viens ! » dit-il.|— Ah ! mon ami… c'est vous ?|— Oui.",
        "Cf. p. 12, chap. 3, etc.|L'art. 5 le dit.",
    ],
    "es": [
        "¡Ven aquí! —gritó él.|¿Qué? ¡nada!|Fue D. Luis.|No.|Luego dijo que no.|Vio al Sr. Gil.",
        "Hay ranas, sapos, etc. en EE. UU. desde 1900.|Véase pág. 3.|Luis XIV.|El rey.",
    ],
    "it": [
        "Il sig. Rossi e la dott.ssa Bo c'erano.|È l'ing. Verdi?|- No.|- Allora chi?",
        "La vita è breve. -- Seneca.|Ah! disse.|Nel sec. XIX, ecc. ecc.",
    ],
    "ru": [
        "— Иди сюда! — крикнул он.|— Нет.",
        "«Иди сюда!» — сказал он.|См. т. 2, с. 5.|Он жил в I в. до н. э. в Риме.",
        "Это А. С. Пушкин, т. е. поэт.|Там были дома, сады и т. п.|Он родился в Москве в 1799 г.|Потом жил там и др.",
        "1. Выбрать место.|2. Строить дом.|Ах… как?|Хорошо?..|Да.",
    ],
    "pl": [
        "To ks. Jan i św. Anna.|Od 1930 r. są tu, m.in. Adam, tzw. Mistrz.",
        "W XIII w. Hesja upadła.|Państwo to powstało ok. 3100 r. p.n.e.|Język był inny.",
        "„Chodź!” – powiedział.|– Nie!|Por. t. 2, s. 5.|Koniec.",
    ],
    "zh": [
        "他说：“好。”|她走了！|为什么？",
        "他出生了。|1990年他走了！|2000人来了。|Tom来了。",
        "“你来了？”他问道。|“来了。”|“好……”|“走吧！”她說，“快。”",
        "「怎麼？」|「沒有。」|A. Lee 先生走了。",
    ],
    "ja": [
        "「はい。」と言った。|「いいえ。」|彼は帰った。",
        "作品『道。』は有名だ。|No. 5である。",
        "終わった。|1990年に生まれた。|2人だ！|Yesと言う。|行く?|はい!|「3歩。",
    ],
    "ko": [
        "그는 있다.|2017년에 왔다.|A. Lee도 왔다!|정말?",
        '"가자." 하고 말했다.|"좋다!" 라고 했다.|"응."|끝.',
    ],
    "tr": [
        "“Gel!” dedi.|Son.|Bu 3. yüzyılda oldu.",
        "II. Dünya Savaşı bitti.|11. Gün geldi.|Bkz. s. 5, vb. şeyler.|M.Ö. 5. yüzyıl mı?|Evet.",
    ],
    "hu": [
        "II. Frigyes, az ún. Nagy, itt járt.|– Gyere! – mondta.|A 19. század ez.",
        "Kb. 5 év, pl. Mária, stb. volt.|Ereje 3.|Majd 4.5 lesz.|2005. aug. 24-én.",
    ],
    "pt": ["O Sr. Silva foi a S. Paulo.|— Ah! sim.|São 3 vs. 4.|Fim da pág. 5.|Viu-o?"],
    "nl": [
        'Bijv. dhr. Jansen, ong. 1600.|\'s Avonds kwam hij.|"Wat?" vroeg zij.|Enz.',
        "Dit is de Somali's.|Het is o.a. Piet.",
    ],
    "sv": [
        "T.ex. Anna, d.v.s. hon.|Styrkan är 3.|Den ökar t.o.m. nu.|1940 kom kriget.",
        "Det... var dumt.|Han såg hus, båtar, tåg m.m.|Nej.",
    ],
    "cs": [
        "Např. T. G. Masaryk, č. 5.|„Kde?“ zeptal se.|V r. 1898 odešel.|Síla je 3.|Karel IV. Lucemburský byl vlk.|Ano."
    ],
    "uk": ["Це було до н. е. у Римі.|- Ні! сказав він.|Див. с. 5, т. 2.|Так."],
    "hi": ["डॉ. सिंह आए।|वे बैठे।|कि.मी. में दूरी ५ है।|अंत।"],
    "ar": ["قال د. أحمد ذلك.|لماذا؟|نعم."],
    "th": ["เกิด ค.ศ. 2005 หรือ พ.ศ. 2548 ยาว 50 กม. จากเมือง!|จริงหรือ?|ใช่"],
    "xx": ["One is here.|Two is there.", "Ven! —li diris.|A. Lee."],
    "ur": ["یہ ہے۔|وہ کہاں ہے؟|ہاں۔"],
}


@pytest.mark.parametrize(
    ("language", "marked"), [(language, case) for language, cases in CASES.items() for case in cases]
)
def test_where_sentences_end(language: str, marked: str) -> None:
    """Written for this test after real dialogue, dates, abbreviations and lists."""
    text = re.sub(r"\|(?=[ -~])" if language in ("ja", "zh") else r"\|", " ", marked)
    assert split_sentences(text.replace("|", ""), language) == marked.split("|")


@pytest.mark.parametrize(
    "unit", [". ", "… ", "1. ", "a. ", "н. э. ", '." ', "。」", "? - ", "w. ", "！", " » . ", "[. ] "]
)
@pytest.mark.parametrize("language", ["de", "ru", "zh"])
def test_time_is_linear_in_other_languages(unit: str, language: str) -> None:
    """A paragraph of such units alone, which took minutes where each one was read again, is split at once."""
    assert split_sentences(unit * (100_000 // len(unit)), language)


@given(
    st.text(alphabet='aŞ .!?。」と「\n"ñ\u00a0।', max_size=60), st.sampled_from(["de", "fr", "ja", "zh", "hi", "qq"])
)
def test_sentences_of_other_languages_lose_nothing(text: str, language: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 20)
        sentences = split_sentences(text, language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() and "\n" not in sentence for sentence in sentences)


def test_a_paragraph_without_blanks_is_cut_after_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 20)
    assert split_sentences("子供たちはここで遊ぶ。" * 30, "ja") == ["子供たちはここで遊ぶ。"] * 30
