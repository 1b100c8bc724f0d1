"""Profiles of simulated devices: their figures, sources and selection."""

import json
import tomllib
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.phantom.profiles import choose, profiles
from memdiag.units import GIB, MIB

TABLE = Path(__file__).parents[2] / "memdiag/phantom/profiles.toml"


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.full_name)
def test_every_figure_has_a_source_or_is_marked_as_an_estimate(profile):
    # One note covers these figures for the whole backend.
    shared = {"soc", "cann", "driver", "capability", "shared_memory_optin", "threads_per_sm"}
    for figure in {"total", "context", *profile.figures} - shared:
        assert figure in profile.sources or figure in profile.estimates, figure
    assert {"cuda": "limits", "npu": "software"}[profile.backend] in {*profile.sources, *profile.estimates}
    assert all(profile.sources.values())
    assert all(profile.estimates.values())


@pytest.mark.parametrize("profile", profiles(), ids=lambda profile: profile.full_name)
def test_figures_are_plausible(profile):
    assert 8 * GIB < profile.capacity_bytes < profile.total_bytes < 256 * GIB
    assert 0 < profile.context_bytes < GIB
    wanted = {
        "cuda": {
            "capability",
            "sms",
            "shared_memory_optin",
            "threads_per_sm",
            "sm_clock_mhz",
            "memory_clock_mhz",
            "nccl_channels",
        },
        "npu": {"soc", "cann", "driver", "cube_cores", "vector_cores"},
    }
    assert set(profile.figures) == wanted[profile.backend]


def test_the_table_names_each_device_once():
    table = tomllib.loads(TABLE.read_text())
    assert len(profiles()) == sum(isinstance(entry, dict) for backend in table.values() for entry in backend.values())


def test_a_device_is_chosen_by_its_name_with_or_without_backend():
    assert choose("npu:910b-64g").full_name == choose("910B-64G").full_name == "npu:910b-64g"


def test_capacity_is_the_memory_available_to_pytorch():
    profile = choose("npu:910b-64g, capacity=30GiB")
    assert profile.capacity_bytes == 30 * GIB
    assert profile.total_bytes == 30 * GIB + profile.context_bytes
    assert "capacity=30GiB was given on the command line" in profile.assumptions


def test_other_figures_can_be_changed():
    profile = choose("cuda:h100-80g,total=40GiB,context=100MiB,sms=66,capability=8.0,devices=4")
    assert (profile.total_bytes, profile.context_bytes, profile.num_devices) == (40 * GIB, 100 * MIB, 4)
    assert (profile.figures["sms"], profile.figures["capability"]) == (66, "8.0")
    assert not any(said.startswith("context is an estimate") for said in profile.assumptions)


@pytest.mark.parametrize(
    ("text", "says", "hints"),
    [
        ("h10", "does not know this device", "cuda:h100-80g"),
        ("npu:910b", "does not know this device", "memdiag devices"),
        ("npu:h100-80g", "does not know this device", "cuda:h100-80g"),
        ("", "does not know this device", "memdiag devices"),
        ("910c,capcity=3", "memdiag does not know this option", "did you mean capacity=…?"),
        ("910c,capacity", "memdiag does not know this option", "capacity="),
        ("910c,sms=3", "memdiag does not know this option", "soc="),
        ("910c,capacity=lots", "not a size", "64GiB"),
        ("910c,devices=0", "give a number from 1 to 64", "devices=8"),
        ("910c,cann=new", "not a version", "cann="),
        ("910c,total=100MiB", "no memory is left", "capacity="),
    ],
)
def test_invalid_devices_raise_an_error_with_a_hint(text, says, hints):
    with pytest.raises(MemdiagError) as refused:
        choose(text)
    assert says in refused.value.message
    assert hints in refused.value.hint


def test_the_command_lists_every_device(capsys):
    assert main(["devices"]) == 0
    shown = " ".join(capsys.readouterr().out.split())  # long names wrap
    assert all(profile.full_name in shown and profile.product in shown for profile in profiles())


def test_the_command_prints_json(capsys):
    assert main(["devices", "npu:910b-64g", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema_version"] == 1
    (device,) = shown["devices"]
    assert device["capacity_bytes"] == choose("npu:910b-64g").capacity_bytes
    assert device["sources"]["total"].startswith("https://")


def test_the_command_on_one_device_gives_its_sources(capsys):
    assert main(["devices", "910c"]) == 0
    shown = capsys.readouterr().out
    assert "Ascend910_9391" in shown
    assert "https://github.com/sgl-project/sglang/issues/29838" in shown
