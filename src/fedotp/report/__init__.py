"""Pictures of runs."""

from fedotp.report._curves import plot_curves
from fedotp.report._maps import TransportMap, plot_maps, transport_maps

__all__ = ["TransportMap", "plot_curves", "plot_maps", "transport_maps"]
