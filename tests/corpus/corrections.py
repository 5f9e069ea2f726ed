"""Deliberate differences from what the command line said before.

A key is a glob over names of cases with the part that differs behind ``#``: ``stdout``, ``stderr``, ``exit``,
``numbers`` and ``tables`` (of a page), or ``file`` and its name. The corrections of a key turn what was said
before into what is said now: (text, or a compiled regular expression; what stands there now; why).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

Correction = tuple[str | re.Pattern[str], str | Callable[[re.Match[str]], str], str]

ONE_PROTOCOL = "a row's name has its protocol only where the same row has several"
BEST = "the oracle of genie-paper/changed sees the best record, as that of genie-paper does"
BASELINES = "a row whose name has no protocol is compared with the baseline of `genie-dg compare`"

ONE_TRIAL = "one trial has no standard error"
NAMED = "domains are named where a run has stored their names"
PACE = "the time left says what it rests on; a run cannot be shared by two workers"
TWO_DEMOS = "the demo has two sets and says more about the network of each"
TOLD = "status says which lines it left out"

LAST = "oracle selection (last checkpoint)"


def without_zeros(match: re.Match[str]) -> str:
    return re.sub(r"\b0\.0\b(?=[,\]])", "null", match[0])


ERRORS: list[Correction] = [(re.compile(r" (?:\+/-|\$\\pm\$) 0\.0\b"), "", ONE_TRIAL)]
CSV: list[Correction] = [(re.compile(r",0\.0,1,"), ",,1,", ONE_TRIAL)]
PAGE: list[Correction] = [
    (re.compile(r'"error": \[[^\]]*\]'), without_zeros, ONE_TRIAL),
    (re.compile(r" ± 0\.0"), "", ONE_TRIAL),  # a footnote's number may follow
]


def without_errors(match: re.Match[str]) -> str:
    return re.sub(r" (?:\+/-|\$\\pm\$|±) 0\.0", "", without_zeros(match))


CHANGED = r"(?:domainbed|demo)/changed|\+ sgd"
"""What marks the rows of the mixed folders that have several trials."""
MIXED_TABLE: list[Correction] = [
    (re.compile(rf"^(?!.*(?:{CHANGED}|& sgd|\| sgd)).*$", re.M), without_errors, ONE_TRIAL)
]
SEVERAL = rf'(?![^"]*(?:{CHANGED}))'
MIXED_PAGE: list[Correction] = [
    (re.compile(rf'\{{"error": \[[^\]]*\], "mean": \[[^\]]*\], "row": "{SEVERAL}'), without_zeros, ONE_TRIAL),
    (re.compile(rf'\["{SEVERAL}[^\]]* \+ [^\]]*\]'), without_errors, ONE_TRIAL),
    (re.compile(r'\["[+-]\d+%", "4[^\]]*\]'), without_errors, ONE_TRIAL),
]


def left_out(match: re.Match[str]) -> str:
    """The end of a line of status: names of digits' domains, which these runs have stored."""
    names = ", ".join(f"{15 * int(k)} degrees" for k in match[2].split(", "))
    return f"{match[1]}{names}, trial {match[3]}, draw {match[4]}"


STATUS: list[Correction] = [
    (re.compile(r"(digits .* without )\[([\d, ]+)\] trial (\d+) draw (\d+)"), left_out, NAMED)
]

WATCHED = (
    "curves beside accuracies and losses come from watch.jsonl alone, which is where measurements are kept"
)
FURTHER: list[Correction] = [
    (re.compile(r', \{"data": "[^"]*", "name": "(?:own number|before)"[^}]*\}'), "", WATCHED)
]

LAST_ATTEMPT = "a run that is not complete says how its last attempt ended"
ATTEMPTS: list[Correction] = [(re.compile(r'(NotFinite: [^"]*?) / NotFinite: [^"]*"'), r'\1"', LAST_ATTEMPT)]

NOISE = "compare has no noise floor; intervals and the standard errors of tables say how much numbers move"

WITHOUT_NOISE: list[Correction] = [
    (re.compile(r"\n\nNoise floor in points: [^\n]*\n(?:\n\|[^\n]*)+"), "", NOISE)
]
WITH_META = (
    "a run without a readable meta.json is left out, so the two runs of that kind have one in the corpus"
)

CORRECTIONS: dict[str, list[Correction]] = {
    **dict.fromkeys(("compare *#stdout",), WITHOUT_NOISE),
    "*broken*#stderr": [(re.compile(r"^.*its domains are numbered\.\n", re.M), "", WITH_META)],
    **dict.fromkeys(
        (
            *("table by-hand * md#stdout", "table by-hand * tex#stdout", "table imported-odd * md#stdout"),
            *("table imported-odd * tex#stdout", "table own-protocol * md#stdout"),
            *("table own-protocol * tex#stdout", "table imported imported-other * md*#stdout"),
            *(
                "table imported imported-other * tex*#stdout",
                "table copies#stdout",
                "table imported-other#stdout",
            ),
        ),
        ERRORS,
    ),
    **dict.fromkeys(("table both * md *#stdout", "table both * tex *#stdout"), MIXED_TABLE),
    **dict.fromkeys(("table * csv*#stdout", "table one run#stdout"), CSV),
    **dict.fromkeys(
        (f"report {name}#*" for name in ("by-hand", "imported-odd", "own-protocol", "imported imported-other")),
        PAGE,
    ),
    "report domainbed genie-paper#*": [
        (re.compile(r'\["ERM \+ sam \(genie-paper/changed\)", "ERM \+ adam [^\]]*\], '), "", BASELINES),
        (re.compile(r"((?:CORAL|IRM) \+ (?:adam|genie)) \(domainbed/changed\)"), r"\1", ONE_PROTOCOL),
        ("ERM + sam (genie-paper/changed)", "ERM + sam", ONE_PROTOCOL),
        (LAST, "oracle selection (best or last checkpoint, by protocol)", BEST),
    ],
    "report imported imported-other#*": [
        *PAGE,
        (re.compile(r"((?:CORAL|DANN) \+ adam) \(domainbed\)"), r"\1", ONE_PROTOCOL),
    ],
    "report both imported-more by-hand own-protocol demo single-source#*": [
        *MIXED_PAGE,
        (re.compile(r"\(resnet50, domainbed\)"), "(resnet50)", ONE_PROTOCOL),
        (re.compile(r"\(cnn, custom\)"), "(cnn)", ONE_PROTOCOL),
        (
            re.compile(r"((?:CORAL \+ genie|ERM \+ sam|ERM\+SWAD \+ adam|IRM \+ adam)) \(mlp, custom\)"),
            r"\1 (mlp)",
            ONE_PROTOCOL,
        ),
        ("ERM + sgd (mlp, demo/changed)", "ERM + sgd (mlp)", ONE_PROTOCOL),
    ],
    "table genie-paper oracle *#stdout": [(LAST, "oracle selection (best checkpoint)", BEST)],
    "table domainbed genie-paper oracle *#stdout": [
        (LAST, "oracle selection (best or last checkpoint, by protocol)", BEST)
    ],
    "table two-protocols oracle *#stdout": [
        (LAST, "oracle selection (best or last checkpoint, by protocol)", BEST)
    ],
    "status broken*#stdout": [
        *STATUS,
        (
            re.compile(r"^(broken-failing: .*; about )\d( .*)$", re.M),
            r"\g<1>1\2, from the timings of 1 run",
            PACE,
        ),
        (re.compile(r"^(broken: .*; about )\d( .*)$", re.M), r"\g<1>1\2, from the timings of 23 runs", PACE),
    ],
    "status broken*#stderr": [
        (re.compile(r"\A"), "genie-dg: Line 2 of broken/1757189e69f1f320/outcomes.jsonl is torn.\n", TOLD)
    ],
    "status pairs all#stdout": [
        *STATUS,
        (re.compile(r"(at a time)$", re.M), r"\1, from the timings of 31 runs", PACE),
    ],
    **dict.fromkeys(("report names#numbers", "report *broken*#numbers"), FURTHER),
    "report *broken*#tables": ATTEMPTS,
    "report genie-paper#*": [(LAST, "oracle selection (best checkpoint)", BEST)],
    "report two-protocols#*": [(LAST, "oracle selection (best or last checkpoint, by protocol)", BEST)],
}


def known_corrections(name: str, text: str) -> str:
    """What was said before, with the corrections of every key that matches the name, in the order of the list.

    >>> CORRECTIONS["table a*#stdout"] = [("colour", "color", "an example")]
    >>> known_corrections("table a md#stdout", "a colour"), known_corrections("table b#stdout", "a colour")
    ('a color', 'a colour')
    >>> del CORRECTIONS["table a*#stdout"]
    """
    for old, new, _ in corrections_of(name):
        text = old.sub(new, text) if isinstance(old, re.Pattern) else text.replace(old, str(new))
    return text


def corrections_of(name: str) -> list[Correction]:
    """The corrections of every key that matches a name."""
    return [one for glob, listed in CORRECTIONS.items() if fnmatchcase(name, glob) for one in listed]
