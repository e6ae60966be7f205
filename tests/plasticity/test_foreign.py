"""Networks that are not ours: the torch collector against the Flax one and a plain loop, and agents of SB3 and SBX."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import flax.linen
import jax
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from neoteny.plasticity import flax as flax_side
from neoteny.plasticity import torch as torch_side
from neoteny.plasticity.churn import value_churn
from neoteny.plasticity.neurons import (
    dormant_ratio,
    dormant_score,
    gradient_sparsity,
    grama_inactive_ratio,
    grama_score,
)
from neoteny.plasticity.norms import effective_learning_rate, l1_norm, l2_norm, weight_norm
from neoteny.plasticity.ntk import gram_metrics
from neoteny.plasticity.rank import rank_metrics

# TensorFlow Probability, which SBX draws its actions with, reads this when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:jax.core.pytype_aval_mappings is deprecated:DeprecationWarning")

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLES = 24
TAU = 0.3
"""High, so that the small networks here have units on both sides of it."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Torch's threads wait for each other: on a busy machine, an update of a small network takes 80 times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(5, 16), nn.LayerNorm(16, eps=1e-6), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 1)
    )


def convolution() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3, padding="same"),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 4 * 4, 10),
        nn.ReLU(),
        nn.Linear(10, 1),
    )


class FlaxMLP(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x: Any) -> Any:
        x = flax.linen.relu(flax.linen.LayerNorm()(flax.linen.Dense(16)(x)))
        x = flax.linen.relu(flax.linen.Dense(12)(x))
        return flax.linen.Dense(1)(x)


class FlaxConvolution(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x: Any) -> Any:
        x = flax.linen.relu(flax.linen.Conv(6, (3, 3), strides=(2, 2), padding="VALID")(x))
        x = flax.linen.relu(flax.linen.Conv(4, (3, 3), strides=(1, 1), padding="SAME")(x))
        x = flax.linen.relu(flax.linen.Dense(10)(x.reshape(len(x), -1)))
        return flax.linen.Dense(1)(x)


TWINS = {
    "mlp": (mlp, FlaxMLP, (5,), {"0": "Dense_0", "1": "LayerNorm_0", "3": "Dense_1", "5": "Dense_2"}, {}),
    "convolution": (
        convolution,
        FlaxConvolution,
        (2, 9, 9),
        {"0": "Conv_0", "2": "Conv_1", "5": "Dense_0", "7": "Dense_1"},
        {"5": (4, 4, 4)},
    ),
}


def value(q: Any, target: Any) -> Any:
    return q + 0.0 * target


def loss(q: Any, target: Any) -> Any:
    return 0.5 * (q - target) ** 2


@pytest.mark.parametrize("f", [value, loss])
@pytest.mark.parametrize("kind", TWINS)
def test_torch_and_flax_measure_the_same(kind: str, f: Callable[[Any, Any], Any]) -> None:
    make, twin, shape, names, reads = TWINS[kind]
    torch.manual_seed(0)
    module = make()
    x, target = torch.randn(SAMPLES, *shape), torch.randn(SAMPLES)
    images = x.numpy() if x.ndim == 2 else x.numpy().transpose(0, 2, 3, 1)
    params = to_flax(module, dict(module.named_parameters()), names, reads)

    def forward(params: Any) -> Any:
        return twin().apply({"params": params}, images)[:, 0]

    ours = torch_side.collect(module, lambda: module(x)[:, 0], lambda q: f(q, target))
    theirs = jax.jit(lambda params: flax_side.collect(params, forward, lambda q: f(q, target.numpy())))(params)
    close(ours.values, theirs.values)
    assert list(ours.layers) == list(names)
    assert len(theirs.layers) == len(names)

    gradients = to_flax(module, ours.gradients, names, reads)
    for name, its_twin in names.items():
        mine, twins = ours.layers[name], theirs.layers[(its_twin,)]
        close(mine.outputs, twins.outputs)
        close(mine.deltas, twins.deltas)
        close(grama_score(mine.deltas), grama_score(twins.deltas))
        for part, gradient in theirs.gradients[its_twin].items():
            close(gradients[its_twin][part], gradient)
    share, its_share = (
        grama_inactive_ratio([grama_score(layer.deltas) for layer in side.layers.values()], TAU)
        for side in (ours, theirs)
    )
    close(share, its_share)
    assert 0 < share < 1
    for norm in (l1_norm, l2_norm, gradient_sparsity):
        close(norm(ours.gradients), norm(theirs.gradients))
    close(l2_norm(dict(module.state_dict())), weight_norm(params))
    rates = effective_learning_rate(gradients, params)
    close([*rates.values()], [effective_learning_rate(theirs.gradients, params)[layer] for layer in rates])

    mine, twins = [], []
    for incoming, outgoing in pairwise(
        name for name in names if not isinstance(module.get_submodule(name), nn.LayerNorm)
    ):
        mine.append(torch_side.activations(ours.layers, incoming, outgoing))
        twins.append(flax_side.activations(theirs.layers, (names[incoming],), (names[outgoing],)))
        close(dormant_score(mine[-1]), dormant_score(twins[-1]))
    close(rank_metrics(mine[-1]), rank_metrics(twins[-1]))
    share, its_share = (dormant_ratio([dormant_score(units) for units in side], TAU) for side in (mine, twins))
    close(share, its_share)
    assert 0 < share < 1

    gram = torch_side.ntk_gram(ours.layers, module)
    its_gram = flax_side.ntk_gram(theirs.layers, flax_side.modules_of(lambda: forward(params)))
    close(gram, its_gram)
    close(gram_metrics(gram)[:3], gram_metrics(its_gram)[:3])


def to_flax(module: nn.Module, tree: dict[str, Any], names: dict[str, str], reads: dict[str, Any]) -> Any:
    """Torch's parameters, or their gradients, as Flax has them; `reads` are the images that a layer reads flat."""
    params: dict[str, Any] = {}
    for name, twin in names.items():
        weight, bias = (np.asarray(torch.as_tensor(tree[f"{name}.{part}"]).detach()) for part in ("weight", "bias"))
        match module.get_submodule(name):
            case nn.LayerNorm():
                params[twin] = {"scale": weight, "bias": bias}
            case nn.Conv2d():
                params[twin] = {"kernel": weight.transpose(2, 3, 1, 0), "bias": bias}
            case nn.Linear():
                if name in reads:  # channels, height, width -> height, width, channels
                    weight = weight.reshape(len(weight), *reads[name]).transpose(0, 2, 3, 1).reshape(len(weight), -1)
                params[twin] = {"kernel": weight.T, "bias": bias}
    return params


def close(mine: Any, twins: Any, rtol: float = 1e-5) -> None:
    mine, twins = np.asarray(mine), np.asarray(twins)
    np.testing.assert_allclose(mine, twins, rtol=rtol, atol=rtol * abs(twins).max())


def odd() -> nn.Sequential:
    """What the twins do not have: padding and strides that differ by axis, activations in place, missing parameters."""
    return nn.Sequential(
        nn.Conv2d(2, 5, (3, 2), stride=(1, 2), padding=(2, 1), bias=False),
        nn.LayerNorm((5, 8, 4)),
        nn.ReLU(inplace=True),
        nn.Conv2d(5, 3, 2, padding="valid"),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(3 * 7 * 3, 9, bias=False),
        nn.LayerNorm(9, bias=False),
        nn.ReLU(inplace=True),
        nn.Linear(9, 7),
        nn.LayerNorm(7, elementwise_affine=False),
        nn.ReLU(inplace=True),
        nn.Linear(7, 1),
    )


@pytest.mark.parametrize(("make", "shape"), [(mlp, (5,)), (convolution, (2, 9, 9)), (odd, (2, 6, 7))])
def test_collected_is_what_a_loop_over_samples_gives(make: Callable[[], nn.Sequential], shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    module = make().double()
    x, target = torch.randn(SAMPLES, *shape).double(), torch.randn(SAMPLES).double()
    collected = torch_side.collect(module, lambda: module(x)[:, 0], lambda q: loss(q, target))

    samples = [alone(module, x[i : i + 1], target[i]) for i in range(SAMPLES)]
    assert list(collected.layers) == list(samples[0][0])
    for name, layer in collected.layers.items():
        outputs, deltas = (torch.cat([layers[name][k] for layers, _ in samples]) for k in (0, 1))
        if outputs.ndim == 4:
            outputs, deltas = outputs.permute(0, 2, 3, 1), deltas.permute(0, 2, 3, 1)
        close(layer.outputs, outputs, 1e-10)
        close(layer.deltas, deltas, 1e-10)
        assert layer.inputs.dtype == layer.outputs.dtype == layer.deltas.dtype == np.float64
    for name, gradient in collected.gradients.items():
        close(gradient, sum(gradients[name] for _, gradients in samples), 1e-10)

    jacobian = torch.stack([torch.cat([g.flatten() for g in gradients.values()]) for _, gradients in samples]).numpy()
    close(torch_side.ntk_gram(collected.layers, module), jacobian @ jacobian.T, 1e-10)


def alone(module: nn.Sequential, x: Tensor, target: Tensor) -> tuple[dict[str, tuple[Tensor, Tensor]], dict[str, Any]]:
    """One sample: pre-activations and their gradients, and those of all parameters, layer by layer by hand."""
    seen: dict[str, Tensor] = {}
    for name, layer in module.named_children():
        x = torch.relu(x) if isinstance(layer, nn.ReLU) else layer(x)
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.LayerNorm):
            seen[name] = x
    parameters = dict(module.named_parameters())
    gradients = torch.autograd.grad(loss(x[0, 0], target), [*seen.values(), *parameters.values()])
    layers = {name: (out.detach(), delta) for (name, out), delta in zip(seen.items(), gradients, strict=False)}
    return layers, dict(zip(parameters, gradients[len(seen) :], strict=True))


def test_collecting_leaves_the_network_as_it_was() -> None:
    module = mlp()
    module[0].eval()
    module[3].weight.grad = torch.full_like(module[3].weight, 3.0)
    modes = [layer.training for layer in module.modules()]
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    x = torch.randn(SAMPLES, 5)
    with torch.no_grad():
        collected = torch_side.collect(module, lambda: module(x)[:, 0], lambda q: q)
        assert not torch.is_grad_enabled()
    assert x.grad is None
    assert not x.requires_grad
    assert [name for name, weight in module.named_parameters() if weight.grad is not None] == ["3.weight"]
    assert (module[3].weight.grad == 3.0).all()
    assert [layer.training for layer in module.modules()] == modes
    assert not any(layer._forward_hooks or layer._backward_hooks for layer in module.modules())
    assert all((weight == before[name]).all() for name, weight in module.state_dict().items())

    kept = collected.layers["0"].inputs.copy()
    x.zero_()  # nothing that was collected is a view of the network's own
    assert (collected.layers["0"].inputs == kept).all()


def test_hooks_are_gone_after_a_forward_that_fails() -> None:
    module = mlp()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch_side.collect(module, lambda: module(torch.zeros(SAMPLES, 6)), lambda q: q[:, 0])
    assert not any(layer._forward_hooks for layer in module.modules())


def test_only_what_forward_calls_counts_and_f_may_call_others() -> None:
    module, judge = mlp(), nn.Linear(1, 1)
    both = nn.ModuleDict({"actor": module, "critic": judge, "idle": nn.Linear(2, 2)})
    x = torch.randn(SAMPLES, 5)
    collected = torch_side.collect(both, lambda: module(x), lambda a: judge(a)[:, 0])
    assert list(collected.layers) == ["actor.0", "actor.1", "actor.3", "actor.5"]
    assert collected.gradients["critic.weight"].any()
    assert not collected.gradients["idle.weight"].any()


def test_frozen_layers_have_deltas_and_no_gradients() -> None:
    module = mlp()
    x = torch.randn(SAMPLES, 5)
    free = torch_side.collect(module, lambda: module(x)[:, 0], lambda q: q)
    module[0].requires_grad_(False)
    frozen = torch_side.collect(module, lambda: module(x)[:, 0], lambda q: q)
    assert frozen.layers["0"].deltas.any()
    close(frozen.layers["0"].deltas, free.layers["0"].deltas)
    assert free.gradients.keys() - frozen.gradients.keys() == {"0.weight", "0.bias"}


def test_half_precision_comes_as_float32() -> None:
    module = mlp().bfloat16()
    collected = torch_side.collect(module, lambda: module(torch.ones(3, 5).bfloat16())[:, 0], lambda q: q)
    assert collected.values.dtype == collected.layers["0"].deltas.dtype == np.float32


def test_what_cannot_be_collected_is_said() -> None:
    module = mlp()
    x = torch.randn(SAMPLES, 5)
    with pytest.raises(ValueError, match=r"one number for each sample, got shape \(\)"):
        torch_side.collect(module, lambda: module(x), lambda q: q.mean())
    with pytest.raises(ValueError, match=r"one number for each sample, got shape \(24, 1\)"):
        torch_side.collect(module, lambda: module(x), lambda q: q)
    with pytest.raises(ValueError, match="calls '0' again"):
        torch_side.collect(module, lambda: module(x) + module(x), lambda q: q[:, 0])
    for layer, shape in [
        (nn.Conv2d(2, 2, 3, groups=2), (2, 5, 5)),
        (nn.Conv2d(2, 2, 3, dilation=2), (2, 5, 5)),
        (nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
        (nn.Linear(4, 2), (3, 4)),
        (nn.LayerNorm(4), (3, 4)),
    ]:
        outputs = torch.randn(SAMPLES, *shape)
        collected = torch_side.collect(layer, lambda: layer(outputs), lambda z: z.square().flatten(1).sum(1))  # noqa: B023
        with pytest.raises(ValueError, match="no Gram matrix"):
            torch_side.ntk_gram(collected.layers, layer)


def test_the_torch_side_needs_no_jax() -> None:
    code = (
        "import sys; from neoteny.plasticity import churn, neurons, norms, ntk, rank, torch; "
        "print([name for name in sys.modules if name.split('.')[0] in ('jax', 'jaxlib', 'flax')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plasticity_sb3", "plasticity_sbx"])
def test_examples_measure_agents_that_are_not_ours(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = example(name)
    rows = module.main(steps=160, every=80)
    assert [row[:2] for row in rows] == [
        (t, network) for t in (80, 160) for network in ("critic 1", "critic 2", "actor")
    ]
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["step", "network", *module.COLUMNS]
    assert len(lines) == len(rows)
    for _, _, measures in rows:
        assert all(math.isfinite(number) for number in measures.values())
        assert 0 <= measures["grama_inactive_ratio"] < 0.5
        assert 0 <= measures["dormant_ratio"] < 0.5
        assert 1e-3 < measures["gradient_l2"] < 1e3
        assert 2 < measures["effective_rank"] < 128  # samples, of 256 units
        assert 1 < measures["ntk_effective_rank"] < 128
    before, after = ({network: measures for step, network, measures in rows if step == when} for when in (80, 160))
    assert all(before[network] != after[network] for network in before)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plasticity_sb3", "plasticity_sbx"])
def test_measuring_does_not_change_the_run(name: str) -> None:
    module = example(name)
    looks = np.random.default_rng(0).uniform(-1, 1, (16, 3)).astype(np.float32)
    actions = []
    for callback in (None, module.Plasticity(every=55)):
        model = module.SAC("MlpPolicy", "Pendulum-v1", seed=0)
        model.learn(115, callback=callback)
        actions.append(model.predict(looks, deterministic=True)[0])
    assert value_churn(*actions) == 0
