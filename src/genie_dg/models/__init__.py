"""Networks: featurizers with named points and a linear head; `backbones.BACKBONES` lists them."""
