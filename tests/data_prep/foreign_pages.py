"""Small wikis in four languages, as MediaWiki exports them. The pages were written for these tests."""

import html
from dataclasses import dataclass


@dataclass(frozen=True)
class Wiki:
    """One wiki. namespaces: (media, special, user, file, template, category); page: wikitext of an article."""

    language: str
    namespaces: tuple[str, str, str, str, str, str]
    page: str
    redirect: str
    meanings: str
    sentences: tuple[str, ...]


WIKIS = [
    Wiki(
        "de",
        ("Medium", "Spezial", "Benutzer", "Datei", "Vorlage", "Kategorie"),
        """[[Datei:Mühle.jpg|mini|hochkant=1.2|Die Mühle [[1900]] im Schnee.]]
Die '''Mühle''' ({{lang-en|mill}}) steht seit dem 3. Mai 1890 am [[Fluss|Flusse]]. Sie mahlt z. B. Korn und hat
{{Zahl|1234567}} Euro gekostet. [[Bild:Alt.png|thumb|links|Alt]]

Dr. Müller besaß sie bis {{FormatNum|1923}}. Größe: über {{formatnum:12500.5}} Quadratmeter.

== Siehe auch ==
Dieser Satz gehört zu einer Liste und fehlt.
[[Kategorie:Mühle]]""",
        "#WEITERLEITUNG [[Mühle]]",
        "Bank steht für vieles.\n{{Begriffsklärung}}",
        (
            "Die Mühle (mill) steht seit dem 3. Mai 1890 am Flusse.",
            "Sie mahlt z. B. Korn und hat 1.234.567 Euro gekostet.",
            "Dr. Müller besaß sie bis 1923.",
            "Größe: über 12.500,5 Quadratmeter.",
        ),
    ),
    Wiki(
        "fr",
        ("Média", "Spécial", "Utilisateur", "Fichier", "Modèle", "Catégorie"),
        """[[Fichier:Pont.jpg|vignette|droite|Le pont, avant sa chute.]]
Le '''pont''' fut bâti au {{s|XIX|e}} par M. Dupont. Il mesure {{unité|1234.5|m}} et pèse {{nombre|25000|tonnes}}.

Est-il solide ? Personne n'en sait rien ! Le {{1er}} mars, {{Mme}} Élise l'a traversé avec {{nobr|deux
amis}}{{Référence nécessaire|date=mars 2010}}.

== Notes et références ==
Cette phrase ne reste pas.
[[Catégorie:Pont]]""",
        "#REDIRECTION [[Pont]]",
        "Le mot désigne plusieurs choses.\n{{Homonymie}}",
        (
            "Le pont fut bâti au XIXe siècle par M. Dupont.",
            "Il mesure 1 234,5 m et pèse 25 000 tonnes.",
            "Est-il solide ?",
            "Personne n'en sait rien !",
            "Le 1er mars, Mme Élise l'a traversé avec deux amis.",
        ),
    ),
    Wiki(
        "ja",
        ("メディア", "特別", "利用者", "ファイル", "Template", "カテゴリ"),
        """[[ファイル:川.jpg|サムネイル|冬の川。]]
'''川'''（{{lang-en|river}}）は山から流れる。長さは{{formatnum:1234567}}メートルである。
夏には水が少ない！ どうしてだろうか？

子供たちはここで遊ぶ。夕方には家に帰る。{{仮リンク|田中一郎|en|Ichiro Tanaka}}がそう書いた。

== 関連項目 ==
この文は残らない。
[[Category:川]]""",
        "#転送 [[川]]",
        "この言葉には多くの意味がある。\n{{曖昧さ回避}}",
        (
            "川（river）は山から流れる。",
            "長さは1,234,567メートルである。",
            "夏には水が少ない！",
            "どうしてだろうか？",
            "子供たちはここで遊ぶ。",
            "夕方には家に帰る。",
            "田中一郎がそう書いた。",
        ),
    ),
    Wiki(
        "zh",
        ("Media", "Special", "User", "File", "Template", "Category"),
        """[[File:河.jpg|缩略图|右|冬天的河。]][[文件:旧.png|thumb|旧的图。]]
'''河'''（{{lang-en|river}}）从山上流下来。它长{{formatnum:1234567}}米，是-{zh-hans:计算机;zh-hant:電腦}-算出来的。夏天会干吗？

孩子们在-{这里}-玩！傍晚他们回家。{{link-en|王先生|Mr. Wang}}这样写道。-{H|zh-cn:河;zh-tw:溪}-

== 參見 ==
这句话不留下。
[[Category:河]]""",
        "#重定向 [[河]]",
        "这个词有很多意思。\n{{消歧义}}",
        (
            "河（river）从山上流下来。",
            "它长1,234,567米，是计算机算出来的。",
            "夏天会干吗？",
            "孩子们在这里玩！",
            "傍晚他们回家。",
            "王先生这样写道。",
        ),
    ),
]


def header(wiki: Wiki) -> str:
    """Returns the beginning of an export as MediaWiki writes it."""
    keys = (-2, -1, 2, 6, 10, 14)
    listed = "".join(
        f'      <namespace key="{key}" case="first-letter">{name}</namespace>\n'
        for key, name in zip(keys, wiki.namespaces)
    )
    return (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" '
        f'xml:lang="{wiki.language}">\n  <siteinfo>\n    <sitename>Wiki</sitename>\n'
        f"    <dbname>{wiki.language}wiki</dbname>\n    <generator>MediaWiki 1.44.0</generator>\n    <namespaces>\n"
        f'{listed}      <namespace key="0" case="first-letter" />\n    </namespaces>\n  </siteinfo>\n'
    )


def export(wiki: Wiki, copies: int = 1) -> str:
    """Returns an export: an article, as often as asked, a redirect, and a list of meanings."""
    texts = [wiki.page] * copies + [wiki.redirect, wiki.meanings]
    pages = "".join(
        f"  <page><title>Page {number}</title><ns>0</ns><id>{number}</id><revision><id>{number}</id>"
        f"<model>wikitext</model><text>{html.escape(text, quote=False)}</text></revision></page>\n"
        for number, text in enumerate(texts)
    )
    return f"{header(wiki)}{pages}</mediawiki>\n"
