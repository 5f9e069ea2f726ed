"""The style of a page: light or dark as the reader likes, colours told apart by colour-blind readers."""

from __future__ import annotations

from .curves import COLOURS

DARK = {"#000000": "#ffffff", "#0072B2": "#3a9bdc"}
"""Colours that cannot be seen on dark paper, and what stands for them there."""

_LIGHT_COLOURS = "".join(f"--c{k}:{c};" for k, c in enumerate(COLOURS))
_DARK_COLOURS = "".join(f"--c{k}:{DARK.get(c, c)};" for k, c in enumerate(COLOURS))
_CLASSES = "".join(f".c{k}{{--k:var(--c{k})}}" for k in range(len(COLOURS)))

STYLE = (
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1a1a1a;--soft:#595959;--edge:#c8c8c8;--fill:#f3f4f6;"
    + "--link:#00568a;--tint:0 114 178;"
    + _LIGHT_COLOURS
    + "}@media(prefers-color-scheme:dark){:root{--paper:#15171a;--ink:#ececec;--soft:#a9adb3;--edge:#454a51;"
    + "--fill:#202327;--link:#7cc4f2;--tint:58 155 220;"
    + _DARK_COLOURS
    + "}}"
    + _CLASSES
    + """
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:0 16px 48px;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.35rem;margin-top:2.5rem;border-top:1px solid var(--edge);
padding-top:1rem}h3{font-size:1.1rem;margin-top:1.75rem}h4{font-size:1rem;margin:0 0 .25rem}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--c5);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--paper);padding:8px;z-index:1}
.scroll{overflow-x:auto;max-width:100%;margin:1.1rem 0 .75rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;overflow-wrap:normal}
caption{text-align:left;color:var(--soft);padding-bottom:.35rem;position:sticky;left:0;
max-width:calc(100vw - 48px)}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--edge);text-align:right;white-space:nowrap;
vertical-align:top}
th[scope=row],.text{text-align:left}.wrap{white-space:normal;min-width:16rem}
thead th{background:var(--fill);border-bottom:2px solid var(--edge)}
tbody th{font-weight:600;background:var(--paper)}tr>:first-child{position:sticky;left:0;white-space:normal;
min-width:7rem;max-width:45vw}.heat{background:rgb(var(--tint)/calc(var(--v)*.5))}.missing{color:var(--soft)}
.most{font-weight:700}
th button{font:inherit;font-weight:600;color:inherit;background:none;border:0;padding:0;cursor:pointer}
th button::after{content:" \\2195";color:var(--soft)}
[aria-sort=ascending] button::after{content:" \\2191"}[aria-sort=descending] button::after{content:" \\2193"}
.note,.notes{color:var(--soft);font-size:.9rem}
.charts{display:flex;flex-wrap:wrap;gap:20px 28px;margin:.75rem 0}
figure{margin:0;width:320px;max-width:100%}figcaption{font-weight:600;font-size:.95rem;margin-bottom:.25rem}
svg{max-width:100%;height:auto;display:block;overflow:visible}
svg text{fill:var(--ink);font-size:12px}.grid,.rail{stroke:var(--edge);stroke-width:1;fill:none}
.zero{stroke:var(--soft);stroke-width:1.5}.line{stroke:var(--k);stroke-width:2.2;fill:none}
.bar,.dot{fill:var(--k)}.heat{fill:var(--ink)}.ring{fill:none;stroke:var(--k);stroke-width:1.5}
.chosen{fill:var(--k);stroke:var(--ink);stroke-width:1.2}.whisker{stroke:var(--ink);stroke-width:1.6;fill:none}
.legend{list-style:none;padding:0;margin:.5rem 0;display:flex;flex-wrap:wrap;gap:4px 18px}
.swatch{display:inline-block;vertical-align:middle;margin-right:6px}
pre{background:var(--fill);padding:.6rem .8rem;overflow-x:auto;font-size:.85rem}
details{margin:.5rem 0}summary{cursor:pointer}
#save{font:inherit;padding:.4rem .8rem;color:inherit;background:var(--fill);border:1px solid var(--edge);
border-radius:4px;cursor:pointer}
@media print{.skip,#save{display:none}}
"""
)
