"""Checks settings as ``memdiag conf`` does: as text, as shell lines with variables, or those of an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memdiag.errors import MemdiagError
from memdiag.results.conf import ConfReport, Listing
from memdiag.settings.environment import ALLOC_VARIABLES, check_environment, guess_backend, read_order
from memdiag.settings.features import FEATURES
from memdiag.settings.lint import lint
from memdiag.settings.listing import listing
from memdiag.settings.model import BACKENDS, parse_version
from memdiag.settings.relations import Scene
from memdiag.settings.tables import newest
from memdiag.settings.written import assignments, guess_by_keys
from memdiag.text import phrase


@dataclass(frozen=True)
class ConfRequest:
    """Backend, version and platform that settings are checked for.

    None stands for the backend inferred from the settings, and for the newest known version.

    Attributes:
        backend: "cuda", "hip" or "npu".
        torch: Version of PyTorch, as "2.13".
        torch_npu: Version of torch_npu; implies the backend "npu".
        platform: "linux", "windows" or "" if unknown.
        features: Features that the program uses, keys of ``FEATURES``.
    """

    backend: str | None = None
    torch: str | None = None
    torch_npu: str | None = None
    platform: str = ""
    features: tuple[str, ...] = ()

    @property
    def version(self) -> str | None:
        """The requested version."""
        return self.torch_npu or self.torch

    def scene(self, guess: str) -> Scene:
        """Returns the scene to check for; ``guess`` is the default backend.

        Raises:
            MemdiagError: The request has no meaning.
        """
        chosen = (self.backend or ("npu" if self.torch_npu else guess)).lower()
        if chosen not in BACKENDS:
            raise MemdiagError(
                phrase("errors.conf-backend", backend=str(self.backend)), phrase("errors.conf-backend.hint")
            )
        if self.platform not in {"", "linux", "windows"}:
            raise MemdiagError(phrase("errors.platform", platform=str(self.platform)), phrase("errors.platform.hint"))
        is_npu = chosen in {"npu", "mindspeed"}
        if self.torch_npu and not is_npu:
            raise MemdiagError(phrase("errors.torch-npu", chosen=str(chosen)), phrase("errors.torch-npu.hint"))
        said = self.version if is_npu else self.torch
        version = parse_version(said) if said else None
        if said and version is None:
            raise MemdiagError(phrase("errors.version", said=str(said)), phrase("errors.torch.hint"))
        return Scene(chosen, version or newest(chosen), self.platform, version is not None)

    def check_environment(self, environ: Mapping[str, str]) -> ConfReport:
        """Returns the report on the variables in ``environ``.

        Raises:
            MemdiagError: The request has no meaning.
        """
        return check_environment(environ, self.scene(guess_backend(environ)), self.features, self.version)

    def check_text(self, text: str) -> ConfReport:
        """Returns the report on settings, or on a shell line with any number of variables.

        Raises:
            MemdiagError: The request has no meaning.
        """
        given = assignments(text)
        named = {assignment.variable: assignment.value for assignment in given if assignment.variable}
        scene = self.scene(guess_backend(named) if named else guess_by_keys(text))
        own = read_order(scene)[0]
        unnamed = [each.value for each in given if not each.variable]
        if named and unnamed:
            named.setdefault(own, unnamed[-1])
        alone = [each for each in given if not each.variable or each.variable in ALLOC_VARIABLES]
        if len(given) == 1 and (not given[0].variable or given[0].variable == own):
            return lint(alone[0], scene, self.features, self.version)
        lost = {each.variable: each.lost for each in alone if each.lost}
        return check_environment(named, scene, self.features, self.version, lost)

    def listing(self) -> Listing:
        """Returns the table of all settings of the backend; by default, of CUDA and NPUs.

        Raises:
            MemdiagError: The request has no meaning.
        """
        scene = self.scene("cuda")
        chosen = (scene.backend,) if self.backend or self.torch_npu else ("cuda", "npu")
        return listing(chosen, scene.version if scene.is_given else None)


def read_features(given: Sequence[str]) -> tuple[str, ...]:
    """Returns the features named in ``given``; one text may hold several names, separated by commas.

    Raises:
        MemdiagError: A feature is unknown.
    """
    features = tuple(
        word.strip().lower().replace("_", "-") for item in given for word in item.split(",") if word.strip()
    )
    for feature in features:
        if feature not in FEATURES:
            raise MemdiagError(
                phrase("errors.feature", feature=str(feature)),
                phrase("errors.feature.hint", value=", ".join(FEATURES)),
            )
    return features
