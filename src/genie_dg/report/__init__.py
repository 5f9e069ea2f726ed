"""Figures from plain records, without torch: in each file ``x_data`` computes and ``plot_x`` only draws."""
