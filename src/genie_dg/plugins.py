"""Everything that a row of your own is made of, under one name; ``docs/extend.md`` shows each in use.

Names are resolved when they are first asked for, so a plugin loads the packages it uses and no others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genie_dg._types import MAIN as MAIN
    from genie_dg._types import DomainBatch as DomainBatch
    from genie_dg._types import Group as Group
    from genie_dg._types import Network as Network
    from genie_dg._types import Objective as Objective
    from genie_dg._types import Role as Role
    from genie_dg._types import StepContext as StepContext
    from genie_dg.algorithms.algorithm import Algorithm as Algorithm
    from genie_dg.algorithms.algorithm import AlgorithmRow as AlgorithmRow
    from genie_dg.algorithms.gradients import with_gradient as with_gradient
    from genie_dg.algorithms.registry import ALGORITHMS as ALGORITHMS
    from genie_dg.bench.trackers.tracker import TRACKERS as TRACKERS
    from genie_dg.bench.trackers.tracker import Tracker as Tracker
    from genie_dg.bench.trackers.tracker import TrackerRow as TrackerRow
    from genie_dg.data.domains import DomainSet as DomainSet
    from genie_dg.data.domains import TensorDomain as TensorDomain
    from genie_dg.data.registry import SETS as SETS
    from genie_dg.data.registry import SetRow as SetRow
    from genie_dg.models.backbones import BACKBONES as BACKBONES
    from genie_dg.models.backbones import BackboneRow as BackboneRow
    from genie_dg.models.backbones import Featurizer as Featurizer
    from genie_dg.optim.registry import OPTIMIZERS as OPTIMIZERS
    from genie_dg.optim.registry import OptimizerRow as OptimizerRow
    from genie_dg.search_space import Choice as Choice
    from genie_dg.search_space import LogUniform as LogUniform
    from genie_dg.search_space import Setting as Setting
    from genie_dg.search_space import Uniform as Uniform

_HOME = {
    "search_space": ("Choice", "LogUniform", "Setting", "Uniform"),
    "_types": ("MAIN", "DomainBatch", "Group", "Network", "Objective", "Role", "StepContext"),
    "algorithms.algorithm": ("Algorithm", "AlgorithmRow"),
    "algorithms.gradients": ("with_gradient",),
    "algorithms.registry": ("ALGORITHMS",),
    "bench.trackers.tracker": ("TRACKERS", "Tracker", "TrackerRow"),
    "data.domains": ("DomainSet", "TensorDomain"),
    "data.registry": ("SETS", "SetRow"),
    "models.backbones": ("BACKBONES", "BackboneRow", "Featurizer"),
    "optim.registry": ("OPTIMIZERS", "OptimizerRow"),
}
__all__ = sorted(name for names in _HOME.values() for name in names)


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"genie_dg.{module}"), name)
    raise AttributeError(
        f"module 'genie_dg.plugins' has no attribute {name!r}; it offers {', '.join(__all__)}."
    )
