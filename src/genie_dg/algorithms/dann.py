"""DANN: features from which the domain cannot be guessed."""

from __future__ import annotations

from typing import final

from ._adversary import ONE_SOURCE, SPACE, Adversarial
from .algorithm import AlgorithmRow


@final
class DANN(Adversarial):
    r"""Domain-adversarial training.

    The discriminator sees the features, :math:`u_i = z_i`, and :math:`w_i = 1/N`. The losses, the
    order of steps and the arguments are those of `Adversarial`.

    References:
        Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016.

    Differs from the paper in: steps alternate, where the paper reverses a gradient and steps both players at
    once; :math:`\lambda` is constant; the gradient penalty is DomainBed's.

    Differs from DomainBed's code in: the first step is the discriminator's (there steps count from 1, so that
    with ``d_steps_per_g_step=1`` the network begins); the network's optimizer is the run's own and knows no
    ``beta1``. As there, the network's loss has the whole :math:`L_D` with its penalty.
    """

    conditional = False


ROW = AlgorithmRow(
    "DANN",
    DANN,
    paper="Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016",
    space=SPACE,
    one_source=ONE_SOURCE,
    adversarial=True,
)
