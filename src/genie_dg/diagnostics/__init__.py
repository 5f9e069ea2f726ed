"""Measurements: gradients, GSNR, OSGR, update balance, sharpness. They never change the run; torch only."""

from ._isolation import MODES as MODES
from ._isolation import undisturbed as undisturbed
from ._losses import MeasurementError as MeasurementError
from .gsnr import GSNR as GSNR
from .gsnr import gsnr as gsnr
from .measured import MeasuredOSGR as MeasuredOSGR
from .measured import measure_osgr as measure_osgr
from .monitor import Monitor as Monitor
from .monitor import every as every
from .monitor import log_steps as log_steps
from .monitor import watch_gsnr as watch_gsnr
from .monitor import watch_osgr as watch_osgr
from .monitor import watch_sharpness as watch_sharpness
from .monitor import watch_updates as watch_updates
from .osgr import OSGR as OSGR
from .osgr import Ratio as Ratio
from .osgr import osgr_as_published as osgr_as_published
from .osgr import osgr_of_batch as osgr_of_batch
from .osgr import osgr_of_moments as osgr_of_moments
from .per_sample import GradientMoments as GradientMoments
from .per_sample import gradient_moments as gradient_moments
from .per_sample import per_sample_gradients as per_sample_gradients
from .preconditioners import preconditioner as preconditioner
from .sharpness import first_order_flatness as first_order_flatness
from .sharpness import loss_rise as loss_rise
from .updates import UpdateRecorder as UpdateRecorder
