"""Draws the figures of the lifecycle study from reports/study.json, which is its argument.

Needs matplotlib, and says so without it.

One figure per device shows the smallest card of each policy, relative to the live tensors at the peak. One figure of
other people's snapshots shows the saving of each policy on the smallest card. The colours are those of Okabe and Ito,
and each policy has another marker.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # who draws need not have memdiag installed

from report import shares_of

from memdiag.units import GIB

try:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("figures: matplotlib is not installed here; --python names a Python that has it")

#         colour, mark
LOOKS = {
    "caching": ("#000000", "o"),
    "expandable": ("#0072B2", "s"),
    "lifecycle": ("#D55E00", "^"),
    "lifecycle-stack": ("#E69F00", "v"),
    "lifetime-oracle": ("#CC79A7", "D"),
    "mempool": ("#999999", "P"),
    "stitch": ("#56B4E9", "X"),
    "plan": ("#009E73", "*"),
}


def draw_device(rows: list[dict], file: Path) -> None:
    """A row a recording, a mark a policy."""
    figure, axes = plt.subplots(figsize=(9, 0.26 * len(rows) + 1.4))
    for y, row in enumerate(rows):
        least = row["results"].get("bound", {}).get("smallest") or row["live"]
        axes.axhline(y, color="#dddddd", linewidth=0.6, zorder=0)
        room = (row["room"] - least) / GIB
        if room >= 0:
            axes.plot([room, room], [y - 0.45, y + 0.45], color="#000000", linewidth=1.6)
        for title, (colour, mark) in LOOKS.items():
            found = row["results"].get(title, {}).get("smallest")
            if found is not None:
                axes.plot((found - least) / GIB, y, mark, color=colour, markersize=6, alpha=0.85, markeredgewidth=0)
    axes.set_yticks(
        range(len(rows)), [f"{row['title']}{', ' * bool(row['variant'])}{row['variant']}" for row in rows], fontsize=7
    )
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=-0.15)
    axes.set_xlabel(
        "GiB of the smallest card above the bound; upright line: the card of the study (none: smaller than the bound)",
        fontsize=8,
    )
    keep(
        figure,
        axes,
        file,
        {title: look for title, look in LOOKS.items() if any(title in row["results"] for row in rows)},
    )


def draw_strangers(rows: list[dict], file: Path) -> None:
    """Draws the saving of each policy on the smallest card, for all snapshots in order of the saving."""
    figure, axes = plt.subplots(figsize=(9, 4))
    drawn = {}
    for title, (colour, mark) in LOOKS.items():
        shares = sorted(shares_of(rows, title, "smallest"), reverse=True)
        if shares and title != "caching":
            drawn[title] = (colour, mark)
            axes.plot(
                [100 * share for share in shares],
                mark,
                linestyle="-",
                linewidth=0.8,
                color=colour,
                markersize=4,
                markeredgewidth=0,
            )
    axes.axhline(0, color="#000000", linewidth=0.6)
    axes.set_yscale("symlog", linthresh=5)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("snapshots, each policy in its own order", fontsize=8)
    axes.set_ylabel("saved of the smallest card, %", fontsize=8)
    keep(figure, axes, file, drawn)


def keep(figure: plt.Figure, axes: plt.Axes, file: Path, looks: dict[str, tuple[str, str]]) -> None:
    """Adds the legend and writes the file, the same bytes for the same rows."""
    handles = [
        plt.Line2D([], [], color=colour, marker=mark, linestyle="", label=title)
        for title, (colour, mark) in looks.items()
    ]
    figure.legend(handles=handles, loc="upper center", ncols=len(handles), fontsize=8, frameon=False)
    axes.tick_params(labelsize=7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / figure.get_figheight()))
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """The command."""
    path = Path(sys.argv[1])
    data = json.loads(path.read_text(encoding="utf-8"))
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "study", "font.family": "sans-serif"})
    for device in dict.fromkeys(row["device"] for row in data["study"]):
        rows = [row for row in data["study"] if row["device"] == device]
        draw_device(rows, path.with_name(f"study-{device.partition(':')[0]}.svg"))
    if data["snapshots"]:
        draw_strangers(data["snapshots"], path.with_name("study-snapshots.svg"))


if __name__ == "__main__":
    main()
