"""DomainBed's protocol (Gulrajani, Lopez-Paz, ICLR 2021) in its two generations, with its present search."""

from __future__ import annotations

from dataclasses import replace

from ._profile import Profile

DOMAINBED = Profile(
    "domainbed",
    "DomainBed 2020, the setting of most papers: ResNet-50 (IMAGENET1K_V1), batch norm frozen; 5,001 steps",
    steps={"default": 5001},
    checkpoint_every={"default": 300, "DomainNet": 1000, "small": 100},
    eval_augment="train",
    draws="by-name",
    oracle="last",
)
"""Each random value has a stream named after it, so a new setting moves no other."""

DOMAINBED_2024 = replace(
    DOMAINBED,
    name="domainbed-2024",
    summary="DomainBed since July 2024: timm's AugMix ResNet-50, batch norm not frozen; else as domainbed",
    backbone="timm/resnet50.ram_in1k",
    freeze_statistics=False,
)
"""Its results are some points above those of the first generation and must not be compared with them."""
