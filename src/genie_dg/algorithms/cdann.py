"""CDANN: features from which the domain cannot be guessed although the class is known."""

from __future__ import annotations

from typing import final

from ._adversary import ONE_SOURCE, SPACE, Adversarial
from .algorithm import AlgorithmRow


@final
class CDANN(Adversarial):
    r"""Class-conditional adversarial training.

    With an embedding e of classes, learned by the discriminator's side, the discriminator sees
    :math:`u_i = z_i + e(y_i)`, and every class of the batch weighs the same:

    .. math:: w_i = \frac{1}{C\,N_{y_i}}, \qquad \sum_i w_i = 1,

    where :math:`N_y` counts the samples of class y in the batch over all domains and C the classes that occur
    in it. The penalty is not weighted. The losses, the order of steps and the arguments are those of
    `Adversarial`.

    References:
        Li et al., Deep Domain Generalization via Conditional Invariant Adversarial Networks, ECCV 2018
        (class prior-normalised domain loss).

    Differs from the paper in: one discriminator that is given the class takes the place of one for each
    class; classes are counted over the whole batch, as in DomainBed, not within each domain, because a
    batch has few samples of a class in a domain. Differs from DomainBed's code in: C counts the classes that
    occur (there: 1 + the largest label of the batch, so that the weights may add up to less than 1); and in
    what DANN differs.
    """

    conditional = True


ROW = AlgorithmRow(
    "CDANN",
    CDANN,
    paper="Li et al., Deep Domain Generalization via Conditional Invariant Adversarial Networks, ECCV 2018",
    space=SPACE,
    one_source=ONE_SOURCE,
    adversarial=True,
)
