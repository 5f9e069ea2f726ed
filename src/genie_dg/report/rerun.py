"""How to run it again: a sweep file for each sweep, a command line for each chosen run by hand.

A sweep is a product of data sets, rows, test domains, draws and trials, so its runs say what its file must say.
In a sweep a setting is either the same in all runs that have it, or drawn by the protocol from draw and trial.
What is the same is written down, which changes nothing where the protocol gives the same value; what differs is
left to the protocol. `genie_dg.report.exact` tries the files and commands and splits off what they do not give.
"""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl

from genie_dg.check import GenieError, InputError
from genie_dg.files import FileWarning, read_whole
from genie_dg.runs.config import RunConfig, from_mapping
from genie_dg.runs.sweep_list import FOLDER, read_list

from .exact import Domains, Files, Rules, differences, products, split

BY_HAND = "custom"
"""The protocol of runs of ``genie-dg train``."""
CHANGED = "/changed"
"""What ends the protocol's name in runs of a sweep with overrides."""
OVERRIDES = (
    *("steps", "checkpoint_every", "backbone", "pretrained", "freeze_statistics", "image_size", "batch_size"),
    *("dropout", "swad", "precision", "augment", "eval_augment"),
)
"""The fields of a run that ``[overrides]`` of a sweep can fix."""
UNTOUCHED = {f.name: f.default for f in fields(RunConfig) if f.name in ("swad", "precision", "augment")}
"""Fields that no protocol sets, and what they are unless overridden."""
SWITCHES = ("fast",)
"""Fields that a sweep says for all its runs, and that sets of small pictures do not know."""
ELSEWHERE = (
    *("dataset", "test_domains", "algorithm", "optimizer", "algorithm_settings", "optimizer_settings"),
    *("trial_seed", "hparams_seed", "protocol", "oracle", "data_digest", "weights_digest", "average_of"),
)
"""Fields that a sweep says in other words, or that follow from its protocol and its data."""
BARE = re.compile(r"[A-Za-z0-9_-]+")
DIWA = "Its runs must be there first; for your own folder give its path in place of the name."
COMMANDS = 50
"""The most command lines of one row."""


@dataclass(frozen=True)
class Again:
    """How to repeat some runs: files to write, by name, commands, and a sentence if more is needed."""

    title: str
    files: dict[str, str] = field(default_factory=dict)
    commands: str = ""
    note: str = ""


def again(frame: pl.DataFrame, chosen: Iterable[str] = (), rules: Rules | None = None) -> list[Again]:
    """How to repeat the runs of a frame.

    Args:
        frame: from `genie_dg.results.frame.load`.
        chosen: identities of the runs by hand that are shown; all when none of a row is among them.
        rules: of today; with them files and commands are tried, and those that would give other runs are not
            shown.
    """
    runs = dict(frame.select("run", "config").iter_rows())
    domains = {name: tuple(listed) for name, listed in frame.select("dataset", "domains").iter_rows()}
    listed, left = [], dict(runs)
    for folder in dict.fromkeys(Path(path).parent for path in frame["folder"]):
        for name, data in remembered(folder).items():
            configs = {config.run_id: config for config in map(from_mapping, data["runs"])}
            if not configs.keys() & runs.keys():
                continue
            left = {run: text for run, text in left.items() if run not in configs}
            toml = str(data.get("toml", ""))
            listed += _sweep(name, list(configs.values()), domains, folder, rules, toml)
    rest = frame.filter(pl.col("run").is_in(list(left)))
    for row, dataset in sorted(rest.select("row", "dataset").unique().rows()):
        own = rest.filter(pl.col("row") == row, pl.col("dataset") == dataset)
        configs_of_row = [from_mapping(json.loads(text)) for text in own["config"]]
        title, home = f"{row} on {dataset}", Path(own["folder"][0]).parent
        if configs_of_row[0].average_of:
            command = f"genie-dg diwa {shlex.quote(dataset)} --out runs"
            listed.append(Again(title, commands=command, note=DIWA))
        elif configs_of_row[0].protocol == BY_HAND:
            listed += _commands(title, configs_of_row, domains, set(chosen), rules)
        else:
            listed += _parts(title, configs_of_row, domains, home, rules)
    return listed


def remembered(folder: Path) -> dict[str, dict[str, Any]]:
    """The sweeps that were started into a folder, by name; a list that cannot be read is left out."""
    sweeps = {}
    for file in sorted((folder / FOLDER).glob("*.json")):
        try:
            data, _ = read_list(file)
            sweeps[data["name"]] = data
        except InputError as error:
            told = str(error).partition(";")[0]
            warnings.warn(f"{told}; the page is made without it.", FileWarning, stacklevel=2)
    return sweeps


def _sweep(
    name: str,
    configs: Sequence[RunConfig],
    domains: Domains,
    folder: Path,
    rules: Rules | None = None,
    toml: str = "",
) -> list[Again]:
    """One sweep: its file, and that of its protocol where it is the user's own; several where it must be."""
    if rules is None or (
        toml and _gives(_files(name, configs, domains, folder, toml), configs, domains, rules)
    ):
        return [_one(name, configs, domains, folder, toml)]
    found = split(configs, lambda some: _files(name, some, domains, folder), domains, rules)
    names = [name] if len(found.parts) == 1 else [f"{name}-{k}" for k in range(1, len(found.parts) + 1)]
    listed = [_one(*part, domains, folder) for part in zip(names, found.parts, strict=True)]
    return listed + _lost(f"Sweep {name}", len(configs), found.lost, found.why)


def _gives(files: Files, configs: Sequence[RunConfig], domains: Domains, rules: Rules) -> bool:
    found = split(configs, lambda _: files, domains, rules)
    return not found.lost and len(found.parts) == 1


def _one(name: str, configs: Sequence[RunConfig], domains: Domains, folder: Path, toml: str = "") -> Again:
    protocol = configs[0].protocol.removesuffix(CHANGED)
    note = "" if protocol_file(protocol, folder) else (
        f"It follows the protocol {protocol}; where genie-dg list protocols does not show it, put its file "
        "beside this one and name that instead."
    )  # fmt: skip
    files = _files(name, configs, domains, folder, toml)
    return Again(f"Sweep {name}", dict(files), f"genie-dg sweep {shlex.quote(name)}.toml --out runs", note)


def _files(
    name: str, configs: Sequence[RunConfig], domains: Domains, folder: Path, toml: str = ""
) -> dict[str, str]:
    """The files of a sweep, its own first."""
    protocol = configs[0].protocol.removesuffix(CHANGED)
    own = protocol_file(protocol, folder)
    if toml and not re.search(r"^fast\s*=", toml, re.M):  # from when that meant another engine
        toml = f"fast = {toml_value(any(config.fast for config in configs))}\n{toml}"
    files = {f"{name}.toml": toml or sweep_text(name, configs, domains, own.name if own else protocol)}
    if own:
        files[own.name] = read_whole(own).decode("utf-8", "replace")
    return files


def _lost(title: str, of: int, lost: Sequence[RunConfig], why: Sequence[str]) -> list[Again]:
    """What cannot be made again, in a sentence."""
    if not lost:
        return []
    what = ", ".join(why[:5]) + (", ..." if why[5:] else "")
    note = f"The rules have changed since, and no file or command gives these runs again (other {what})."
    return [Again(f"{title}: {len(lost)} of {of} runs cannot be made again", note=note)]


def protocol_file(protocol: str, folder: Path) -> Path | None:
    """The file of the user's own protocol, when it lies beside the runs."""
    for path in sorted(folder.glob("*.toml")):
        try:
            text = read_whole(path).decode("utf-8", "replace")
        except OSError:
            continue  # whatever it is, it is not the file of a protocol
        named = re.search(r"""^name\s*=\s*["'](.*?)["']""", text, re.M)
        if named and named[1] == protocol and re.search(r"^base\s*=", text, re.M):
            return path
    return None


def _parts(
    title: str, configs: Sequence[RunConfig], domains: Domains, folder: Path, rules: Rules | None
) -> list[Again]:
    """Runs of a protocol whose sweep nobody remembers: as few sweeps as give exactly these runs."""
    fixed = [key for key in (*OVERRIDES, "threads") if key not in ("batch_size", "dropout")]
    kinds: dict[str, list[RunConfig]] = {}
    for config in configs:
        kinds.setdefault(repr([config.protocol, *(getattr(config, key) for key in fixed)]), []).append(config)
    parts = [part for kind in kinds.values() for part in products(kind)]
    names = [f"again-{k}" for k in range(1, len(parts) + 1)] if len(parts) > 1 else ["again"]
    listed = [
        one for n, part in zip(names, parts, strict=True) for one in _sweep(n, part, domains, folder, rules)
    ]
    return [replace(one, title=f"{title}: {one.title[:1].lower()}{one.title[1:]}") for one in listed]


def sweep_text(name: str, configs: Sequence[RunConfig], domains: Domains, protocol: str) -> str:
    """The file of a sweep that gives exactly these runs, which must be a product."""
    sets = list(dict.fromkeys(config.dataset for config in configs))
    head: dict[str, Any] = {
        "name": name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) else "again",
        "protocol": protocol,
        "datasets": list(sets),
        "algorithms": list(dict.fromkeys(config.algorithm for config in configs)),
        "optimizers": list(dict.fromkeys(config.optimizer for config in configs)),
        "test_domains": _tests(configs, [domains.get(dataset, ()) for dataset in sets]),
        "hparams": sorted({config.hparams_seed for config in configs}),
        "trials": sorted({config.trial_seed for config in configs}),
    }
    head |= {name: any(getattr(config, name) for config in configs) for name in SWITCHES}
    head |= _same([_others(config) for config in configs])
    lines = [f"{key} = {toml_value(value)}" for key, value in head.items()]
    if configs[0].protocol.endswith(CHANGED):
        values = _same([{key: getattr(config, key) for key in OVERRIDES} for config in configs])
        lines += _section("overrides", {k: v for k, v in values.items() if UNTOUCHED.get(k, "") != v})
    for kind in ("algorithm", "optimizer"):
        for owner in head[f"{kind}s"]:
            own = [getattr(c, f"{kind}_settings") for c in configs if getattr(c, kind) == owner]
            lines += _section(f"{kind}_settings.{_key(owner)}", _same(own))
    return "\n".join(lines) + "\n"


def _others(config: RunConfig) -> dict[str, Any]:
    """Fields that came later, where they are not as usual; sweeps and commands have keys of the same name."""
    known = {*OVERRIDES, *SWITCHES, *ELSEWHERE}
    later = [f for f in fields(RunConfig) if f.name not in known]
    return {f.name: value for f in later if (value := getattr(config, f.name)) != f.default}


def _tests(configs: Sequence[RunConfig], domains: Sequence[Sequence[str]]) -> Any:
    """The task by its name, or the sets of test domains."""
    tests = {config.test_domains for config in configs}
    count = len(domains[0])
    if count and all(len(listed) == count for listed in domains):
        one, two = set(combinations(range(count), 1)), set(combinations(range(count), 2))
        rest = {tuple(k for k in range(count) if k != source) for source in range(count)}
        tasks = {"leave-one-out": one, "leave-two-out": two, "both": one | two, "single-source": rest}
        for task, members in tasks.items():
            if tests == members and count > (2 if task in ("leave-two-out", "both") else 1):
                return task
    names = domains[0] if len(domains) == 1 and len({name.lower() for name in domains[0]}) == count else ()
    return [[names[k] if names else k for k in test] for test in sorted(tests)]


def _same(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all agree on."""
    first = settings[0]
    return {k: v for k, v in first.items() if v is not None and all(k in s and s[k] == v for s in settings)}


def _section(name: str, values: Mapping[str, Any]) -> list[str]:
    lines = [f"{_key(key)} = {toml_value(value)}" for key, value in values.items()]
    return ["", f"[{name}]", *lines] if lines else []


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else json.dumps(name)


def toml_value(value: Any) -> str:
    """A value as TOML writes it.

    >>> toml_value(["a", 1, 0.5, True]), toml_value({"b c": float("inf")})
    ('["a", 1, 0.5, true]', '{ "b c" = inf }')
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {toml_value(x)}' for key, x in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _commands(
    title: str, configs: Sequence[RunConfig], domains: Domains, chosen: set[str], rules: Rules | None
) -> list[Again]:
    """A command line for each chosen run by hand."""
    names = domains[configs[0].dataset]
    wrong: dict[str, list[str]] = {}
    for config in configs if rules else ():
        wrong[config.run_id] = _wrong(config, domains, rules)
    lost = [config for config in configs if wrong.get(config.run_id)]
    kept = [config for config in configs if not wrong.get(config.run_id)]
    shown = [config for config in kept if config.run_id in chosen] or kept
    shown = sorted(shown, key=lambda c: (c.test_domains, c.trial_seed, c.run_id))
    left_out = f"{len(kept) - len(shown[:COMMANDS])} of {len(kept)} runs, not chosen, are left out."
    note = left_out if len(kept) > len(shown[:COMMANDS]) else ""
    if any(config.weights_digest for config in shown):
        note = f"{note} For FILE name your file of weights.".strip()
    lines = "\n".join(train_command(config, names) for config in shown[:COMMANDS])
    why = list(dict.fromkeys(word for words in wrong.values() for word in words))
    return [Again(title, {}, lines, note)] * bool(kept) + _lost(title, len(configs), lost, why)


def _wrong(config: RunConfig, domains: Domains, rules: Rules | None) -> list[str]:
    """What differs in the run that a command line gives; of weights the file is not known."""
    if rules is None:
        return []
    plain = replace(config, weights_digest="", pretrained=config.pretrained and not config.weights_digest)
    _, _, *words = shlex.split(train_command(plain, domains[config.dataset]))
    try:
        return differences(plain, rules.typed(words, domains))
    except GenieError as refusal:
        return [str(refusal).rstrip(".")]


def train_command(config: RunConfig, domains: Sequence[str]) -> str:
    """The command line of one run.

    >>> config = RunConfig("digits", (1,), optimizer="sam", backbone="mlp", optimizer_settings={"rho": 0.1})
    >>> print(train_command(config, ("0 degrees", "15 degrees")))
    genie-dg train digits --test-domain '15 degrees' --algorithm ERM --optimizer sam --backbone mlp \
--steps 1000 --every 100 --batch-size 32 --dropout 0.0 --image-size 224 \
--precision float32 --trial 0 --exact --set optimizer.rho=0.1
    """
    c = config
    words = ["genie-dg", "train", c.dataset]
    for k in c.test_domains:
        words += ["--test-domain", domains[k]]
    words += ["--algorithm", c.algorithm, "--optimizer", c.optimizer, "--backbone", c.backbone]
    words += ["--steps", str(c.steps), "--every", str(c.checkpoint_every), "--batch-size", str(c.batch_size)]
    words += ["--dropout", str(c.dropout), "--image-size", str(c.image_size), "--precision", c.precision]
    words += ["--trial", str(c.trial_seed)]
    words += ["--weights", "FILE"] if c.weights_digest else ["--pretrained"] * c.pretrained
    words += ["--swad"] * c.swad + ["--no-augment"] * (not c.augment) + ["--exact"] * (not c.fast)
    for name, value in _others(c).items():
        flag = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    for owner, settings in (("algorithm", c.algorithm_settings), ("optimizer", c.optimizer_settings)):
        for key, value in settings.items():
            words += ["--set", f"{owner}.{key}={json.dumps(value) if isinstance(value, list) else value}"]
    return shlex.join(words)
