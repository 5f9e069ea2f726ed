"""The numbers of the paper's main tables, exactly as printed: quoted, never computed.

"One-Step Generalization Ratio Guided Optimization for Domain Generalization", ICML 2025. A line of a table is
a row: its name, then its cells, ``value`` or ``value±error``, in percent (times in seconds). The mark after a
name is the paper's own: ``*`` was taken by the paper from Zhang et al. (FAD, ICCV 2023), ``†`` from the
original literature and DomainBed. What is spelled otherwise than printed: "(ours)" is left out, YOGI is Yogi,
I-Mixup is Mixup, Mixstyle is MixStyle; ``SGD@5000`` is SGD after 5,000 iterations.
"""

from __future__ import annotations

from ._quoted import Inconsistency, Quoted, quoted
from .published_appendix import APPENDIX

MAIN: tuple[Quoted, ...] = (
    quoted(
        "optimizers",
        "",
        "Table 2 (tab:comparison_of_opt)",
        "PACS VLCS OfficeHome TerraIncognita DomainNet Avg",
        """
        Adam*        84.2  77.3  67.6  44.4  43.0  63.3
        AdamW*       83.6  77.4  68.8  45.2  43.4  63.7
        SGD*         79.9  78.1  68.5  44.9  43.2  62.9
        Yogi*        81.2  77.6  68.3  45.4  43.5  63.2
        AdaBelief*   84.6  78.4  68.0  45.2  43.5  63.9
        AdaHessian*  84.5  78.6  68.4  44.4  44.4  64.1
        SAM*         85.3  78.2  68.0  45.7  43.4  64.1
        GAM*         86.1  78.5  68.2  45.2  43.8  64.4
        FAD*         88.2  78.9  69.2  45.7  44.4  65.3
        GENIE        87.8  80.7  69.7  52.0  44.1  66.9
        """,
    ),
    quoted(
        "iterations",
        "",
        "Table 3 (tab:iteration_opt)",
        "Time PACS VLCS OfficeHome",
        """
        SGD@5000     5273  69.8  76.7  51.3
        SGD@10000   10546  73.9    77  62.5
        SGD@15000   15783  75.8  77.7  63.9
        Adam@5000    5443  84.2    77  63.6
        Adam@10000  10934  86.1    77  65.2
        Adam@15000  16531  84.5    77  65.2
        SAM@5000     5775  82.4  79.4  69.4
        SAM@10000   11500  83.5  80.3  69.6
        SAM@15000   17191  84.1  80.4    70
        GENIE@5000   4292  88.4  81.3    70
        GENIE@10000  8582  87.1  81.3  69.2
        GENIE@15000 12876  86.9  81.3  69.1
        """,
    ),
    quoted(
        "single-source",
        "",
        "Table 4 (tab:sdg)",
        "PACS VLCS OfficeHome TerraIncognita Avg",
        """
        Adam         64.3  56.2  50.7  33.5  51.2
        SGD          49.5  60.4  45.9  22.8  44.7
        SAM          57.7  66.7  59.2  26.8  52.6
        GENIE        69.5  69.9  58.6  36.0  58.5
        RSC+Adam     56.8  51.6   2.1  31.6  35.5
        RSC+SGD      22.2  39.8   1.7  17.6  20.3
        RSC+GENIE    68.2  68.7  54.4  33.2  56.1
        CORAL+Adam   64.3  56.2  50.7  33.5  51.2
        CORAL+SGD    49.5  60.4  45.9  22.8  44.7
        CORAL+GENIE  70.9  69.2  56.4  36.7  58.3
        """,
    ),
    quoted(
        "integration",
        "",
        "Table 5 (tab:dg)",
        "PACS VLCS OfficeHome TerraIncognita Avg",
        """
        ERM†          85.5  77.5  66.5  46.1  68.9
        IRM†          83.5  78.6  64.3  47.6  68.5
        GroupDRO†     84.4  76.7  66.0  43.2  67.6
        Mixup†        84.6  77.4  68.1  47.9  69.5
        MLDG†         84.9  77.2  66.8  47.8  69.2
        MMD†          84.7  77.5  66.4  42.2  67.7
        DANN†         83.7  78.6  65.9  46.7  68.7
        CDANN†        82.6  77.5  65.7  45.8  67.9
        MTL†          84.6  77.2  66.4  45.6  68.5
        SagNet†       86.3  77.8  68.1  48.6  70.2
        ARM†          85.1  77.6  64.8  45.5  68.3
        VREx†         84.9  78.3  66.4  46.4    69
        MixStyle*     85.2  77.9  60.4    44  66.9
        MIRO*         85.4  78.9  69.5  45.4  69.8
        GENIE         87.8  80.7  69.7  52.0  72.6
        RSC+Adam*     84.5  77.9  65.7  44.5  68.2
        RSC+AdamW*    83.4  77.5  66.3  45.1  68.1
        RSC+SGD*      82.6  78.1    67  43.9  67.9
        RSC+GENIE     87.3  80.6  68.1  49.5  71.4
        CORAL+Adam*     86  78.9  68.7  43.7  69.3
        CORAL+AdamW*  86.4  79.5  69.8  45.0  70.2
        CORAL+SGD*    85.6  78.2  69.5  45.8  69.8
        CORAL+GENIE   87.9  80.7  70.6  48.4  71.9
        """,
    ),
    quoted(
        "ablation",
        "PACS",
        "Table 6 (tab:ablation)",
        "Art Cartoon Photo Sketch Avg",
        """
        none                     88.0  79.7  96.7  72.7  84.2
        precondition             89.5  82.3  98.4  79.4  87.4
        precondition+noise       85.4  77.4  98.6  78.7  85.0
        precondition+mask        84.6  79.9  98.3  77.4  85.1
        precondition+noise+mask  89.3  84.1  98.7  81.6  88.4
        """,
    ),
)
"""Tables 2 to 6."""

PUBLISHED: dict[tuple[str, str], Quoted] = {(t.experiment, t.dataset): t for t in (*MAIN, *APPENDIX)}
"""All tables of results by experiment and data set; that of a main table is empty, but for the ablation."""

_MEAN = "the mean of the printed columns"
_SWAPPED = "the detailed table; there RSC+GENIE and CORAL+GENIE are the other way round"
INCONSISTENCIES = (
    # The printed average is not the mean of the row's columns, to rounding (0.05).
    Inconsistency("Table 6", "none", "Avg", 84.2, 84.275, _MEAN),
    Inconsistency("Table 10", "Adam", "Avg", 77.3, 77.575, _MEAN),
    Inconsistency("Table 11", "Adam", "Avg", 67.6, 67.7, _MEAN),
    # A main table and the average of the detailed table differ.
    Inconsistency("Table 2", "Adam", "PACS", 84.2, 84.3, "Table 9"),
    Inconsistency("Table 3", "SGD@15000", "PACS", 75.8, 75.9, "Table 14"),
    Inconsistency("Table 3", "Adam@15000", "PACS", 84.5, 84.6, "Table 14"),
    Inconsistency("Table 3", "GENIE@5000", "VLCS", 81.3, 81.4, "Table 15"),
    Inconsistency("Table 3", "GENIE@10000", "VLCS", 81.3, 81.4, "Table 15"),
    Inconsistency("Table 3", "GENIE@15000", "VLCS", 81.3, 81.4, "Table 15"),
    Inconsistency("Table 5", "ERM", "VLCS", 77.5, 77.3, "Table 18"),
    Inconsistency("Table 5", "ERM", "TerraIncognita", 46.1, 47.8, "Table 20"),
    Inconsistency("Table 4", "RSC+GENIE", "PACS", 68.2, 70.9, f"Table 21, {_SWAPPED}"),
    Inconsistency("Table 4", "CORAL+GENIE", "PACS", 70.9, 68.2, f"Table 21, {_SWAPPED}"),
    Inconsistency("Table 4", "RSC+GENIE", "VLCS", 68.7, 69.2, f"Table 22, {_SWAPPED}"),
    Inconsistency("Table 4", "CORAL+GENIE", "VLCS", 69.2, 68.7, f"Table 22, {_SWAPPED}"),
)
"""Where the paper contradicts itself; nothing is corrected here. Tables 14 to 16 also print 150000
iterations where Table 3 and the times say 15,000: their rows are called ``@15000``."""
