"""What tests need of torch's version."""

from __future__ import annotations

import pytest
import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])

FSDP2_ON_CPU = pytest.mark.skipif(TORCH < (2, 6), reason="FSDP2 needs CUDA before torch 2.6")
STABLE_COMPILATION = pytest.mark.skipif(
    TORCH < (2, 6), reason="torch.compile compiles again for every float lr before torch 2.6"
)
ONNX = pytest.mark.skipif(TORCH < (2, 6), reason="torch 2.5 cannot write batch norms as ONNX")
NAMED = [True, False] if TORCH >= (2, 6) else [False]
"""Whether an optimizer is given names with its parameters, which torch has since 2.6."""
