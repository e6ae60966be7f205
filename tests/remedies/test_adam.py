"""Adam after surgery: what was changed takes a new Adam's steps, in JAX and in torch; recycling keeps the count."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from neoteny.integrations.sb3 import ReDoCallback
from neoteny.plasticity.norms import leaves
from neoteny.remedies import torch as on_torch
from neoteny.remedies.reset import reset
from neoteny.remedies.shrink_perturb import shrink_perturb
from neoteny.remedies.surgery import cleared

OPTIMISERS = {
    "adam": optax.adam(1e-3),
    "adamw": optax.adamw(1e-3, weight_decay=0.01),
    "chain": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)),
}


def tree(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    return {
        "one": {"kernel": draw(3, 4), "bias": draw(4)},
        "norm": {"scale": draw(4), "bias": draw(4)},
        "head": {"kernel": draw(4, 1), "bias": draw(1)},
    }


def steps_of(optimiser: Any, opt: Any, params: Any, count: int = 12) -> list[Any]:
    made = []
    for index in range(count):
        step, opt = optimiser.update(tree(50 + index), opt, params)
        made.append(step)
    return made


def used(optimiser: Any, params: Any) -> Any:
    opt = optimiser.init(params)
    for index in range(300):
        _, opt = optimiser.update(tree(1_000 + index), opt, params)
    return opt


@pytest.mark.parametrize("name", OPTIMISERS)
def test_after_a_reset_every_step_is_a_new_adams(name: str) -> None:
    optimiser = OPTIMISERS[name]
    params, changed = reset(tree(1), tree(2), None)
    after = steps_of(optimiser, cleared(used(optimiser, params), params, changed, restart=True), params)
    expected = steps_of(optimiser, optimiser.init(params), params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), after, expected)


def test_after_shrink_perturb_so_is_every_step_of_what_was_changed() -> None:
    optimiser = OPTIMISERS["adam"]
    params, changed = shrink_perturb(tree(1), tree(2), 0.8)
    after = steps_of(optimiser, cleared(used(optimiser, params), params, changed, restart=True), params)
    expected = steps_of(optimiser, optimiser.init(params), params)
    for one, other in zip(after, expected, strict=True):
        for part in ("one", "head"):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), one[part], other[part])


def test_after_a_reset_from_a_layer_no_step_is_larger_than_a_new_adams() -> None:
    """What was reset takes a new Adam's steps; what was kept keeps its moments, and takes smaller ones."""
    optimiser = OPTIMISERS["adam"]
    params, changed = reset(tree(1), tree(2), (("head",),))
    before = used(optimiser, params)
    opt = cleared(before, params, changed, restart=True)
    after, expected = steps_of(optimiser, opt, params), steps_of(optimiser, optimiser.init(params), params)
    for one, other in zip(after, expected, strict=True):
        np.testing.assert_allclose(one["head"]["kernel"], other["head"]["kernel"], rtol=1e-6)
        assert max(float(abs(leaf).max()) for leaf in leaves(one)) <= 1.001e-3
    np.testing.assert_array_equal(opt[0].nu["one"]["kernel"], before[0].nu["one"]["kernel"])


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("surgery", ["reset", "shrink-perturb"])
def test_in_torch_the_next_steps_are_a_new_adams(kind: Any, surgery: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    inputs = torch.randn(16, 3)

    def train(net: Any, optimiser: Any, count: int) -> None:
        for index in range(count):
            optimiser.zero_grad()
            ((net(inputs) - index) ** 2).mean().backward()
            optimiser.step()

    optimiser = kind(net.parameters(), lr=1e-3)
    train(net, optimiser, 300)
    new = on_torch.fresh(net)
    changed = on_torch.reset(net, new) if surgery == "reset" else on_torch.shrink_perturb(net, new, 0.8)
    on_torch.forget(optimiser, net, changed, restart=True)
    twin = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    twin.load_state_dict(net.state_dict())
    train(net, optimiser, 12)
    train(twin, kind(twin.parameters(), lr=1e-3), 12)
    for mine, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("scores", [[1.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]], ids=["a unit", "a whole layer"])
def test_in_torch_recycling_keeps_the_count(scores: list[float]) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimiser = torch.optim.Adam(net.parameters())
    net(torch.randn(5, 3)).sum().backward()
    optimiser.step()
    hidden = [on_torch.HiddenModule("0", ("2",))]
    changed = on_torch.recycle(net, on_torch.fresh(net), hidden, {"0": np.array(scores)}, 0.1)
    on_torch.forget(optimiser, net, changed, ReDoCallback.restarts)
    assert [float(optimiser.state[parameter]["step"]) for parameter in net.parameters()] == [1.0] * 4


def test_any_optimiser_whose_state_has_the_parameters_shapes_is_cleared() -> None:
    """Momentum, RMSProp, Lion and Adam with AMSGrad: after a reset each takes the steps of a new one."""
    for optimiser in (
        optax.sgd(1e-3, momentum=0.9),
        optax.rmsprop(1e-3, momentum=0.9),
        optax.lion(1e-3),
        optax.amsgrad(1e-3),
    ):
        params, changed = reset(tree(1), tree(2), None)
        after = steps_of(optimiser, cleared(used(optimiser, params), params, changed, restart=True), params)
        expected = steps_of(optimiser, optimiser.init(params), params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), after, expected)


@pytest.mark.parametrize(
    "optimiser", [optax.adafactor(1e-3, min_dim_size_to_factor=1), optax.inject_hyperparams(optax.adam)(1e-3)]
)
def test_an_optimiser_whose_state_is_not_understood_is_refused(optimiser: Any) -> None:
    params, changed = reset(tree(1), tree(2), None)
    with pytest.raises(ValueError, match="belongs to no parameter, so surgery cannot clear it"):
        cleared(optimiser.init(params), params, changed, restart=True)
