"""The rows of the study that the registry does not have: optimizers under names of their own, settings fixed.

What is searched, and where, stands in `protocol.toml`.
"""

from dataclasses import replace

from genie_dg.plugins import OPTIMIZERS, Setting

VARIANTS = {
    "sam-sgd": ("sam", {"base": "sgd"}),
    "sam-adam": ("sam", {"base": "adam"}),
    "genie-precondition": ("genie", {"noise": False, "dropout": 0.0}),
    "genie-scale-free": ("genie", {"scale_free": True}),
    "genie-scale-free-wider": ("genie", {"scale_free": True}),
    "msvag-wider": ("msvag", {}),
}

for name, (optimizer, fixed) in VARIANTS.items():
    row = OPTIMIZERS[optimizer]
    space = {**row.space, **{key: Setting(value) for key, value in fixed.items()}}
    OPTIMIZERS.register(replace(row, name=name, space=space))
