"""Instruments: gradients, GSNR, OSGR, update balance, sharpness. They measure and never disturb; torch alone."""
