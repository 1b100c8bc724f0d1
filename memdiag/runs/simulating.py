"""Simulates a recorded run as ``memdiag simulate`` does: predictions, and what can be written of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from memdiag.allocator.as_snapshot import write_snapshot
from memdiag.allocator.as_trace import Simulated
from memdiag.allocator.policies import POLICIES
from memdiag.allocator.result import Replay
from memdiag.allocator.rows import rows_of
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.simulated_run import SimulatedRun
from memdiag.allocator.subject import Subject
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.pools_judged import with_advice
from memdiag.offload.predict import predict_offload
from memdiag.offload.settings import OffloadSettings
from memdiag.output_file import whole_file
from memdiag.results.prediction import Prediction, PredictionReport
from memdiag.results.report import Report
from memdiag.runs.scenarios import SimulationRequest
from memdiag.runs.simulated_runs import simulated_run
from memdiag.runs.simulation import predict, report_of
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT, require_moment


@dataclass(frozen=True)
class PredictedRun:
    """One simulated run.

    Attributes:
        scenario: The simulated scenario.
        prediction: Its result.
        replay: Its replay.
        simulated: The replay as a trace.
        subject: The recording that was replayed: with the moves in it for ``--policy offload``.
    """

    scenario: Scenario
    prediction: Prediction
    replay: Replay
    simulated: Simulated
    subject: Subject

    def write_rows(self, path: Path) -> None:
        """Writes the allocator state after each event to an .npz file.

        Raises:
            MemdiagError: The file cannot be written.
        """
        is_npu = POLICIES[self.scenario.policy].backend == "npu"
        columns = rows_of(self.replay, self.subject.workload, with_addresses=is_npu)
        with whole_file(path) as file:  # numpy would add .npz to other names
            np.savez_compressed(file, **columns)  # type: ignore[arg-type]

    def write_trace(self, path: Path) -> None:
        """Writes the run as a trace to analyze.

        Raises:
            MemdiagError: The file cannot be written.
        """
        write_snapshot(path, self.simulated, self.replay)


@dataclass(frozen=True)
class Simulation:
    """Simulated runs of a recording.

    Attributes:
        report: The report on the runs.
        subject: The recording.
        runs: The runs, in the order of the request.
    """

    report: PredictionReport
    subject: Subject
    runs: tuple[PredictedRun, ...]

    def recorded_report(self) -> Report:
        """Returns the diagnosis of the recording, at the moment of the simulation."""
        at = self.subject.at
        # A recording without a failure has a moment too.
        return build_report(self.subject.trace, device=self.subject.device.device, at=DEFAULT if at == "oom" else at)

    def curves(self) -> list[SimulatedRun]:
        """Returns the curves of all runs that have the calls of the recording, after those of the recorded settings."""
        subject, own, found = self.subject, self.subject.recorded, []
        if subject.calibration.exact is not None:
            found.append(simulated_run(subject, own, subject.replay(own, log=False), "as recorded"))
        for run in self.runs:
            # A run with an offload plan has additional calls, so its curve has another length.
            if run.scenario != own and len(run.replay.reserved) == len(subject.workload.row):
                label = f"{run.scenario.policy}: {run.scenario.conf or 'defaults'}"
                found.append(simulated_run(subject, run.scenario, run.replay, label))
        return found


def simulate(
    trace: Trace,
    device: DeviceTrace,
    request: SimulationRequest,
    *,
    at: str | int = DEFAULT,
    offload: OffloadSettings | None = None,
    communicators: int | None = None,
    with_min_capacity: bool = False,
) -> Simulation:
    """Simulates a recorded run.

    Args:
        trace, device: The recording.
        request: What to simulate; its settings are checked by the caller (``SimulationRequest.check``).
        at: The moment at which reserved memory is split, as for ``build_report``.
        offload: Settings of an offload plan; None: no plan is made.
        communicators: Number of HCCL communicators, for the advice on pools.
        with_min_capacity: Whether to find the smallest device memory with which each run fits.

    Raises:
        MemdiagError: No run has the moment, or the trace lacks what an offload plan needs.
    """
    subject = replace(request.on_card(Subject.of(trace, device)), at=at)
    runs = [
        PredictedRun(scenario, *predict(subject, scenario, with_min_capacity=with_min_capacity), subject)
        for scenario in request.scenarios(subject)
    ]
    if offload is not None:
        scenario = request.offload_scenario(subject)
        moved, found = predict_offload(subject, scenario, offload, predict, with_min_capacity=with_min_capacity)
        runs.append(PredictedRun(scenario, *found, moved))
    require_moment([device, *(run.simulated.device for run in runs)], at)
    report = report_of(subject, tuple(run.prediction for run in runs), with_min_capacity=with_min_capacity)
    report = with_advice(report, subject, [run.scenario for run in runs], communicators)
    return Simulation(report, subject, tuple(runs))
