"""Tiny made-up data sets in the forms that programs of other people read; each function fills the program's folder."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:!?'-$&3\n"  # 65 characters, as in Shakespeare


def text(length: int) -> str:
    """Random characters, the same in each run; each occurs."""
    drawn = np.random.default_rng(0).integers(0, len(LETTERS), length)
    return LETTERS + "".join(LETTERS[one] for one in drawn)


def characters(folder: Path) -> None:
    """Writes the files of nanoGPT's data/shakespeare_char/prepare.py: numbers of characters, in two files."""
    place = folder / "data" / "shakespeare_char"
    numbers = np.random.default_rng(0).integers(0, len(LETTERS), 200_000, dtype=np.uint16)
    numbers[:-20_000].tofile(place / "train.bin")
    numbers[-20_000:].tofile(place / "val.bin")
    with (place / "meta.pkl").open("wb") as file:
        pickle.dump({"vocab_size": len(LETTERS), "itos": dict(enumerate(LETTERS)), "stoi": {}}, file)


def input_text(folder: Path) -> None:
    """A text file input.txt."""
    (folder / "input.txt").write_text(text(20_000), encoding="utf-8")


def words(folder: Path) -> None:
    """The three files of WikiText-2, each with lines of 20 words out of 1,000."""
    place = folder / "data" / "wikitext-2"
    place.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for name, count in (("train", 1000), ("valid", 200), ("test", 200)):
        lines = [" ".join(f"word{number}" for number in row) for row in generator.integers(0, 1000, (count, 20))]
        (place / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def mnist(folder: Path) -> None:
    """The four files of MNIST with 512 and 256 images, in each folder in which the examples look."""
    generator = np.random.default_rng(0)
    for place in ("data", "../data", "../../data", "../../data/mnist"):
        raw = (folder / place).resolve() / "MNIST" / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        for name, count in (("train", 512), ("t10k", 256)):
            images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8).tobytes()
            labels = generator.integers(0, 10, count, dtype=np.uint8).tobytes()
            for kind, content in (
                ("images-idx3", struct.pack(">IIII", 2051, count, 28, 28) + images),
                ("labels-idx1", struct.pack(">II", 2049, count) + labels),
            ):
                (raw / f"{name}-{kind}-ubyte").write_bytes(content)
                (raw / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))


def images(folder: Path) -> None:
    """A folder of images in two classes, for torchvision's ImageFolder: 96 to train, 16 to validate."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for part, count in (("train", 48), ("val", 8)):
        for kind in ("cat", "dog"):
            place = folder / "sample" / part / kind
            place.mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 256, (256, 256, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.jpg")


def carvana(folder: Path) -> None:
    """24 images with a mask of two values each, in the folders of Pytorch-UNet."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for part in ("imgs", "masks"):
        (folder / "data" / part).mkdir(parents=True, exist_ok=True)
    for number in range(24):
        pixels = generator.integers(0, 256, (96, 128, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "data" / "imgs" / f"{number}.png")
        mask = generator.integers(0, 2, (96, 128), dtype=np.uint8)
        Image.fromarray(mask).save(folder / "data" / "masks" / f"{number}_mask.png")


def super_resolution(folder: Path) -> None:
    """Images in the folders of BSDS300."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for part in ("train", "test"):
        place = folder / "dataset" / "BSDS300" / "images" / part
        place.mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(0, 256, (321, 481, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{number}.jpg")


def cora(folder: Path) -> None:
    """A graph of 2,708 nodes and 5,429 edges in the text form of Cora."""
    place = folder / "cora"
    place.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    words = (generator.random((2708, 1433)) < 0.013).astype(int)
    words[:, 0] = 1  # no node without a word
    rows = [f"{node}\t" + "\t".join(map(str, row)) + f"\tclass{node % 7}" for node, row in enumerate(words)]
    (place / "cora.content").write_text("\n".join(rows) + "\n", encoding="utf-8")
    edges = generator.integers(0, 2708, (5429, 2))
    (place / "cora.cites").write_text("\n".join(f"{one}\t{other}" for one, other in edges) + "\n", encoding="utf-8")
