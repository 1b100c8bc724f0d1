"""Data of the plots of ``memdiag plot --kind``; ``memdiag.render.plot`` draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from memdiag.registry import Registry

if TYPE_CHECKING:
    from memdiag.results.plots import CardPlot, FragmentationPlot, LifetimesPlot, MapPlot, PoliciesPlot, TimelinePlot
    from memdiag.trace.model import DeviceTrace, Trace
    from memdiag.views.plot_frame import Ask


class PlotData(Protocol):
    """Gathers the data of one kind of plot."""

    def __call__(
        self, trace: Trace, device: DeviceTrace, ask: Ask
    ) -> TimelinePlot | FragmentationPlot | LifetimesPlot | PoliciesPlot | MapPlot | CardPlot:
        """Returns the data of a device; raises ``MemdiagError`` if the file lacks data for the plot."""


PLOT_DATA: Registry[PlotData] = Registry(
    "picture",
    PlotData,
    {
        "timeline": "memdiag.views.plot_timeline:timeline_of",
        "fragmentation": "memdiag.views.plot_fragmentation:fragmentation_of",
        "lifetimes": "memdiag.views.plot_lifetimes:lifetimes_of",
        "policies": "memdiag.views.plot_policies:policies_of",
        "map": "memdiag.views.plot_map:map_of",
        "card": "memdiag.views.plot_card:card_of",
    },
)
