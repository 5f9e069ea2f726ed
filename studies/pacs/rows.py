"""The rows of the study: optimizers of the registry under names of their own, with what is fixed and searched.

Every learning rate is searched over two decades and the weight decay over the same range in all rows; GENIE's
rows also search `dropout` and `beta`, as published. The centres come from the pilot (`plan.md`).
"""

from dataclasses import replace

from genie_dg.plugins import OPTIMIZERS, LogUniform, Setting, Uniform

CENTRES = {
    "sgd-momentum": ("sgd", 0.01, {"momentum": 0.9}),
    "adam-wide": ("adam", 3e-4, {}),
    "sam-sgd": ("sam", 0.01, {"base": "sgd", "rho": 0.05}),
    "sam-adam": ("sam", 3e-4, {"base": "adam", "rho": 0.05}),
    "msvag-wide": ("msvag", 0.01, {}),
    "genie-published": ("genie", 0.003, {}),
    "genie-precondition": ("genie", 0.003, {"noise": False, "dropout": 0.0}),
    "genie-scale-free": ("genie", 0.015, {"scale_free": True}),
}

for name, (base, centre, fixed) in CENTRES.items():
    row = OPTIMIZERS[base]
    space = {key: Setting(setting.default) for key, setting in row.space.items()}
    space |= {key: Setting(value) for key, value in fixed.items()}
    space["weight_decay"] = Setting(0.0, LogUniform(-6, -2))
    if base == "genie":
        space["beta"] = Setting(0.95, Uniform(0.9, 0.999))
        if "dropout" not in fixed:
            space["dropout"] = Setting(0.4, Uniform(0.1, 0.8))
    if base == "msvag":
        space["beta"] = Setting(0.9, Uniform(0.9, 0.999))
    import math

    middle = math.log10(centre)
    space["lr"] = Setting(centre, LogUniform(middle - 1, middle + 1))
    OPTIMIZERS.register(replace(row, name=name, space=space))
