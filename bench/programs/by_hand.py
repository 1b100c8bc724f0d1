"""Counts by hand what programs of other people need: parameters, gradients, optimizer states and activations.

    python bench/programs/by_hand.py FOLDER

FOLDER holds the sources of bench/programs_of_others.toml, unpacked, in folders named as there. The result is
bench/programs_by_hand.json, which programs_of_others.py puts beside the measured peaks. memdiag takes no part in it.

The model is made on PyTorch's fake CUDA tensors, which need no card and have no data, from the classes of the program
and the sizes of its command. Activations are what autograd saves in one forward pass (``saved_tensors_hooks``): each
storage once, without parameters and buffers, and with the batch. Optimizer states are counted by the kind of
optimizer: two copies of the parameters for Adam and Adadelta, one for SGD with momentum, none without. On a GPU,
cuBLAS takes a workspace of 32 MiB (Hopper) for each thread that multiplies matrices: the program's and autograd's.

A peak at one moment does not hold gradients and activations in full, so the sum is an upper estimate for them. It lacks
temporary tensors of kernels, cuDNN's workspaces, and evaluation with larger batches.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F  # noqa: N812

RESULT = Path(__file__).parents[1] / "programs_by_hand.json"
STATES = {"adam": 2, "adadelta": 2, "momentum": 1, "sgd": 0}
MADE: dict[str, Any] = {}
WORKSPACES = 2 * (32 << 20)


def classes(path: Path, **known: Any) -> ModuleType:
    """Runs the imports, classes and functions of a script, and nothing else of it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
    made = ModuleType(f"own_{path.parent.name}_{path.stem}")
    sys.modules[made.__name__] = made  # dataclasses look there
    scope = made.__dict__
    scope.update(known, __file__=str(path))
    for node in tree.body:
        if isinstance(node, kinds):
            try:
                exec(compile(ast.Module([node], []), str(path), "exec"), scope)  # noqa: S102 - the models of the table
            except ImportError:
                continue  # a package for logging or data
    return made


def count(
    name: str,
    build: Callable[[], tuple[nn.Module, Callable[[], torch.Tensor]]],
    optimizer: str,
    *,
    is_real: bool = False,
    multiplies: bool = True,
) -> None:
    """Counts one program and keeps the numbers.

    Args:
        name: Family and name, as in programs_of_others.toml.
        build: Makes the model, and the function of one forward pass to the loss.
        optimizer: A key of STATES.
        multiplies: Whether it multiplies matrices, for which cuBLAS takes workspaces.
        is_real: Whether values decide sizes: then small tensors on the CPU take the place of fake ones.
    """
    saved: dict[int, int] = {}
    kept: list[torch.Tensor] = []
    try:
        with nullcontext() if is_real else FakeTensorMode(), torch.device("cpu" if is_real else "cuda"):
            model, step = build()
            own = {id_of(each) for each in (*model.parameters(), *model.buffers())}

            def keep(tensor: torch.Tensor) -> torch.Tensor:
                if id_of(tensor) not in own and (is_real or tensor.device.type == "cuda"):
                    saved[id_of(tensor)] = tensor.untyped_storage().nbytes()
                    kept.append(tensor)  # so that no storage takes its place
                return tensor

            # cuDNN cannot describe its buffers without a card; PyTorch's own recurrent cells save gates and states.
            with (
                torch.backends.cudnn.flags(enabled=not has_cells(model)),
                torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            ):
                loss = step()
            kept.append(loss)
            trained = sum(each.nbytes for each in model.parameters() if each.requires_grad)
            parameters = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
    except Exception as error:  # noqa: BLE001 - the other programs are counted
        print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return
    MADE[name] = {
        "parameters": parameters,
        "gradients": trained,
        "optimizer states": STATES[optimizer] * trained,
        "activations": sum(saved.values()),
        "workspaces": WORKSPACES if multiplies else 0,
    }
    print(name, MADE[name])


def id_of(tensor: torch.Tensor) -> int:
    """Returns the number of the storage of a tensor, which views share."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - fake storages have no address


def has_cells(model: nn.Module) -> bool:
    """Returns whether a model has recurrent layers of PyTorch."""
    return any(isinstance(each, nn.RNNBase) for each in model.modules())


def integers(most: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, most, shape)


# ------------------------------------------------------------------------------------------------------- the programs


def makemore(folder: Path) -> None:
    source = classes(folder / "makemore" / "makemore.py")
    config = source.ModelConfig(block_size=16, vocab_size=27, n_layer=4, n_embd=64, n_embd2=64, n_head=4)
    kinds = {
        "transformer": source.Transformer,
        "mlp": source.MLP,
        "bow": source.BoW,
        "bigram": source.Bigram,
        "rnn": lambda config: source.RNN(config, cell_type="rnn"),
        "gru": lambda config: source.RNN(config, cell_type="gru"),
    }
    for kind, make in kinds.items():

        def build(make: Any = make) -> Any:
            model = make(config)
            return model, lambda: model(integers(27, 32, 16), integers(27, 32, 16))[1]

        count(f"makemore {kind}", build, "adam", multiplies=kind != "bigram")  # bigram only looks up rows


def gpts(folder: Path) -> None:
    sys.path.insert(0, str(folder / "minGPT"))  # its modules import each other
    from mingpt.model import GPT

    # adder: two numbers of two digits, and their sum; chargpt: the 65 characters of the text
    for name, kind, vocabulary, block, batch in (
        ("minGPT adder, gpt-nano", "gpt-nano", 10, 6, 64),
        ("minGPT chargpt, gpt-mini", "gpt-mini", 65, 128, 8),
    ):

        def build(kind: str = kind, vocabulary: int = vocabulary, block: int = block, batch: int = batch) -> Any:
            config = GPT.get_default_config()
            config.model_type, config.vocab_size, config.block_size = kind, vocabulary, block
            model = GPT(config)
            tokens = integers(vocabulary, batch, block)
            return model, lambda: model(tokens, tokens)[1]

        count(name, build, "adam")


def words(folder: Path) -> None:
    source = classes(folder / "examples" / "word_language_model" / "model.py")
    for kind in ("LSTM", "GRU", "RNN_TANH"):

        def build(kind: str = kind) -> Any:
            tokens, target = integers(1001, 35, 20), integers(1001, 700)
            model = source.RNNModel(kind, 1001, 200, 200, 2, 0.2)
            return model, lambda: F.nll_loss(model(tokens, model.init_hidden(20))[0], target)

        # PyTorch describes the fused cell of a GRU only on a real device
        count(f"pytorch/examples word_language_model, {kind}", build, "sgd", is_real=kind == "GRU")

    def transformer() -> Any:
        tokens, target = integers(1001, 35, 20), integers(1001, 700)
        model = source.TransformerModel(1001, 200, 2, 200, 2, 0.2)
        return model, lambda: F.nll_loss(model(tokens).view(-1, 1001), target)

    count("pytorch/examples word_language_model, Transformer", transformer, "sgd", is_real=True)


def digits(folder: Path) -> None:
    def classifier(path: str, name: str, batch: int, *shape: int, arguments: Any = ()) -> Callable[[], Any]:
        def build() -> Any:
            model = getattr(classes(folder / path), name)(*arguments)
            batch_of, target = torch.rand(batch, *shape), integers(10, batch)
            return model, lambda: F.cross_entropy(model(batch_of), target)

        return build

    count("pytorch/examples mnist", classifier("examples/mnist/main.py", "Net", 64, 1, 28, 28), "adadelta")
    count("pytorch/examples mnist_rnn", classifier("examples/mnist_rnn/main.py", "Net", 64, 1, 28, 28), "adadelta")
    part = "pytorch-tutorial/tutorials/02-intermediate"
    path = f"{part}/convolutional_neural_network/main.py"
    count(
        "pytorch-tutorial convolutional_neural_network",
        classifier(path, "ConvNet", 100, 1, 28, 28, arguments=(10,)),
        "adam",
    )

    def recurrent() -> Any:
        model = nn.ModuleList([nn.LSTM(28, 128, 2, batch_first=True), nn.Linear(128, 10)])
        images = torch.rand(100, 28, 28)
        return model, lambda: F.cross_entropy(model[1](model[0](images)[0][:, -1]), integers(10, 100))

    count("pytorch-tutorial recurrent_neural_network", recurrent, "adam")

    def vae(source: Any, images: torch.Tensor) -> Any:
        model = source.VAE()

        def step() -> torch.Tensor:
            made, mean, variance = model(images)
            spread = -0.5 * torch.sum(1 + variance - mean.pow(2) - variance.exp())
            return F.binary_cross_entropy(made, images.view(-1, 784), reduction="sum") + spread

        return model, step

    plain = classes(folder / "examples" / "vae" / "main.py")
    count("pytorch/examples vae", lambda: vae(plain, torch.rand(128, 1, 28, 28)), "adam")
    sizes = {"image_size": 784, "h_dim": 400, "z_dim": 20}

    def other() -> Any:
        path = folder / "pytorch-tutorial/tutorials/03-advanced/variational_autoencoder/main.py"
        return vae(classes(path, **sizes), torch.rand(128, 784))

    count("pytorch-tutorial variational_autoencoder", other, "adam")

    def siamese() -> Any:
        model = classes(folder / "examples" / "siamese_network" / "main.py").SiameseNetwork()
        one, two = torch.rand(64, 1, 28, 28), torch.rand(64, 1, 28, 28)
        return model, lambda: F.binary_cross_entropy(model(one, two).squeeze(), torch.rand(64))

    count("pytorch/examples siamese_network", siamese, "adadelta")

    def larger() -> Any:
        model = classes(folder / "examples" / "super_resolution" / "model.py").Net(upscale_factor=3)
        return model, lambda: F.mse_loss(model(torch.rand(4, 1, 85, 85)), torch.rand(4, 1, 255, 255))

    count("pytorch/examples super_resolution", larger, "adam", multiplies=False)


def images(folder: Path) -> None:
    del folder
    import timm
    import torchvision

    def vision(make: Callable[[], nn.Module], batch: int, kinds: int) -> Callable[[], Any]:
        def build() -> Any:
            model = make().train()
            return model, lambda: F.cross_entropy(model(torch.rand(batch, 3, 224, 224)), integers(kinds, batch))

        return build

    zoo = torchvision.models
    count("pytorch/examples imagenet, resnet18 on 96 images", vision(zoo.resnet18, 16, 1000), "momentum")
    count("pytorch/examples imagenet, resnet50, --gpu 0", vision(zoo.resnet50, 16, 1000), "momentum")
    count(
        "timm train.py, resnet50, 96 images",
        vision(lambda: timm.create_model("resnet50", num_classes=2), 16, 2),
        "momentum",
    )


def graphs(folder: Path) -> None:
    del folder
    from torch_geometric.nn import models

    for kind, make in (("GCN", models.GCN), ("SAGE", models.GraphSAGE), ("GAT", models.GAT)):

        def build(make: Any = make) -> Any:
            model = make(256, 128, 3, 7, dropout=0.5)
            edges, target = integers(5000, 2, 79_872), integers(7, 3000)
            features = torch.rand(5000, 256)
            return model, lambda: F.cross_entropy(model(features, edges)[:3000], target)

        count(f"torch_geometric {kind}", build, "adam", is_real=True)


def agents(folder: Path) -> None:
    envs = SimpleNamespace(
        single_observation_space=SimpleNamespace(shape=(4,)), single_action_space=SimpleNamespace(n=2)
    )

    def ppo() -> Any:
        model = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, each))
            for each in (1, 2)
        )
        seen = torch.rand(128, 4)
        return model, lambda: model[0](seen).mean() + model[1](seen).log_softmax(-1).mean()

    def dqn() -> Any:
        model = classes(folder / "cleanrl" / "cleanrl" / "dqn.py").QNetwork(envs)
        return model, lambda: model(torch.rand(128, 4)).mean()

    count("cleanrl ppo", ppo, "adam")
    count("cleanrl dqn", dqn, "adam")


def gans(folder: Path) -> None:
    """The step of the generator: the discriminator's activations are there as well, and its gradients and states."""
    size = {"img_shape": (1, 28, 28), "opt": SimpleNamespace(latent_dim=100)}

    def gan() -> Any:
        source = classes(folder / "PyTorch-GAN" / "implementations" / "gan" / "gan.py", **size)
        both = nn.ModuleList([source.Generator(), source.Discriminator()])
        noise, valid = torch.rand(64, 100), torch.ones(64, 1)
        return both, lambda: F.binary_cross_entropy(both[1](both[0](noise)), valid)

    count("PyTorch-GAN gan", gan, "adam")

    own = {"latent_dim": 100, "img_size": 32, "channels": 1, "n_classes": 10, "code_dim": 2}

    def made(name: str, **sizes: Any) -> Any:
        known = {"opt": SimpleNamespace(**{**own, **sizes}), "img_shape": (1, sizes.pop("img_size", 32), 32)}
        source = classes(folder / "PyTorch-GAN" / "implementations" / name / f"{name}.py", **known)
        return nn.ModuleList([source.Generator(), source.Discriminator()])

    def dcgan() -> Any:
        both = made("dcgan")
        return both, lambda: F.binary_cross_entropy(both[1](both[0](torch.rand(64, 100))), torch.ones(64, 1))

    def cgan() -> Any:
        both = made("cgan")
        noise, labels = torch.rand(64, 100), integers(10, 64)
        return both, lambda: F.mse_loss(both[1](both[0](noise, labels), labels), torch.ones(64, 1))

    def infogan() -> Any:
        both = made("infogan", latent_dim=62)
        noise, labels, code = torch.rand(64, 62), torch.rand(64, 10), torch.rand(64, 2)
        return both, lambda: F.mse_loss(both[1](both[0](noise, labels, code))[0], torch.ones(64, 1))

    count("PyTorch-GAN dcgan", dcgan, "adam")
    count("PyTorch-GAN cgan", cgan, "adam")
    count("PyTorch-GAN infogan", infogan, "adam")

    def example() -> Any:
        path = folder / "examples" / "dcgan" / "main.py"
        source = classes(path, ngpu=1, nz=100, ngf=64, ndf=64, nc=3)
        both = nn.ModuleList([source.Generator(1), source.Discriminator(1)])

        def step() -> torch.Tensor:
            made = both[0].main(torch.rand(16, 100, 1, 1))
            return F.binary_cross_entropy(both[1].main(made).view(-1), torch.ones(16))

        return both, step

    count("pytorch/examples dcgan, fake data", example, "adam", multiplies=False)


def others(folder: Path) -> None:
    del folder

    def graphed() -> Any:
        model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
        return model, lambda: model(torch.randn(256, 1024)).square().mean()

    count("PyTorch make_graphed_callables", graphed, "sgd")

    def rnn() -> Any:
        embed, lstm, head = nn.Embedding(1000, 128), nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 10)
        model = nn.ModuleList([embed, lstm, head])
        return model, lambda: head(lstm(embed(integers(1000, 32, 200)))[0][:, -1]).logsumexp(-1).mean()

    count("PyTorch LSTM on sequences of varying length", rnn, "adam")


def main() -> None:
    """Counts all programs."""
    folder = Path(sys.argv[1])
    for group in (makemore, gpts, words, digits, agents, gans, others, images, graphs):
        try:
            group(folder)
        except Exception as error:  # noqa: BLE001 - a package or a source is missing
            print(f"{group.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
    RESULT.write_text(json.dumps(MADE, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
