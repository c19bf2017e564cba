"""Templates that are not part of a sentence: remarks to editors, references, boxes, navigation, layout."""

from data_prep.wikitext.templates.arguments import names

DROPPED = frozenset(
    names(
        """
        sfn|sfnp|sfnm|sfnmp|efn|efn-ua|efn-lr|refn|notetag|note|ref|ref label|note label|r|rp|ran|reflist|notelist
        cref|cref2
        harv|harvnb|harvcol|subscription required|registration required|dead link|cbignore|webarchive|wayback
        usurped
        citation needed|cn|fact|medcn|clarify|when|who|which|where|by whom|according to whom|why|how|vague|specify
        explain
        page needed|failed verification|dubious|better source|better source needed|full|full citation needed|pov
        pov-inline
        unreliable source?|verify source|verification needed|disputed inline|weasel-inline|weasel inline|update inline
        update after|qualify evidence|contradict-inline|or|synthesis inline|importance inline|undue weight inline
        elucidate
        speculation inline|tone inline|inconsistent|refimprove|primary source inline|inflation-fn|inflation/fn|loc
        audio icon
        clear|-|clearleft|clearright|anchor|anchors|space|0|nowrap begin|nowrap end|listen|legend|hidden|pow|kia|rs
        flagicon|flag icon|flagdeco|flagicon image|extinct|dagger|double dagger|asterisk|increase|decrease|steady
        infobox|taxobox|automatic taxobox|speciesbox|clade|cladogram|graph|quote box|multiple image|multiple images
        navbox
        main|main article|see also|further|further information|details|about|for|redirect|redirect2|other uses|hatnote
        portal|commons|commons category|wikiquote|wiktionary|sister project links|authority control|defaultsort
        use dmy dates|use mdy dates|use british english|use american english|short description|pp|toc|toc limit
        coord missing
        s-start|s-end|end|col-begin|col-end|col-break|col-2|col-3|div col|div col end|colbegin|colend|refbegin|refend
        cot|cob
        shy|wbr|zwj|zwnj|zwsp|lrm|rlm|#tag:ref
        age nts|time ago|multiple issues|good article|featured article|unreferenced section|expand section|wide image
        double image|panorama|italic title|displaytitle|good topic|bots|more footnotes|update|cleanup|tone|globalize
        """
    )
)
DROPPED_PREFIXES = tuple(
    names(
        """
        cite web|cite book|cite journal|cite news|cite encyclopedia|cite conference|cite press|cite episode|cite av
        citation
        infobox|navbox|taxobox|automatic taxobox|campaignbox|use |pp-|about|redirect|commons|wiki|portal|distinguish
        stack|for-
        see also|main |further |multiple |other uses|location map|chart|graph:|ref label|#if|#switch|#tag|#expr|#invoke
        defaultsort:|!--
        """
    )
)
