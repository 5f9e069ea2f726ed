"""OSGR of four optimizers on rotated digits: python examples/osgr_curves.py [folder] [steps]"""

import sys
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from pytorch_optimizer import MSVAG
from torch import nn

from genie_dg import GENIE
from genie_dg.data.digits import rotated_digits
from genie_dg.diagnostics import Monitor, every, watch_osgr
from genie_dg.results.figures import curve_data, plot_curves, write_csv

OPTIMIZERS = {"SGD": (torch.optim.SGD, 0.1), "Adam": (torch.optim.Adam, 0.001)}
OPTIMIZERS |= {"M-SVAG": (MSVAG, 0.1), "GENIE": (GENIE, 0.1)}
folder, steps = Path(sys.argv[1] if sys.argv[1:] else "osgr"), int(sys.argv[2] if sys.argv[2:] else 500)
domains = rotated_digits()[:-1]
x, y = torch.cat([d.images for d in domains]), torch.cat([d.labels for d in domains])
pool, records = (x[::2], y[::2]), {}  # every second sample is for measuring only
for name, (kind, lr) in OPTIMIZERS.items():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer, loss = kind(model.parameters(), lr=lr), lambda net, x, y: nn.functional.cross_entropy(net(x), y)
    monitor = Monitor(watch_osgr(model, optimizer, loss, pool, n=16), every(max(1, steps // 25), start=1))
    for step in range(1, steps + 1):
        batch = torch.randint(len(x) // 2, (16,)) * 2 + 1
        optimizer.zero_grad()
        loss(model, x[batch], y[batch]).backward()
        optimizer.step()
        monitor(step)
    records[name] = monitor.records
figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
for ax, number in zip(axes, ("osgr_first_order", "theorem_osgr"), strict=True):
    plot_curves(data := curve_data(records, number), ax).set_ylim(-0.5, 1.1)
    write_csv(folder / f"{number}.csv", data)
figure.savefig(folder / "osgr.png", dpi=130)
