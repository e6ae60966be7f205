"""TorchRL's SAC with age-weighted replay: its collector, its loss and its replay buffer, with our sampler in it.

    pip install '.[torchrl]' gymnasium   # in a clone of Neoteny
    python examples/torchrl_sac.py

Pendulum, two environments, about a minute on one core; prints the mean return of the episodes that ended in
each stretch of frames. The collector's batches are [envs, time], and reshape(-1) puts each environment's steps
together: env_first=True says so. --replay uniform leaves the sampler out.
"""

from __future__ import annotations

import argparse

import torch
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import Compose, GymEnv, InitTracker, RewardSum, SerialEnv, StepCounter, TransformedEnv
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

from neoteny.integrations.torchrl import AgeWeightedSampler

NUM_ENVS, PER_BATCH, RANDOM_FRAMES, BATCH = 2, 20, 600, 128


def make_buffer(replay: str, seed: int) -> TensorDictReplayBuffer:
    """The replay buffer of TorchRL's SAC example; the sampler is the only difference."""
    sampler = AgeWeightedSampler(decay_steps=4_000, num_envs=NUM_ENVS, env_first=True) if replay == "swd" else None
    return TensorDictReplayBuffer(
        storage=LazyTensorStorage(100_000),
        sampler=sampler,
        batch_size=BATCH,
        generator=torch.Generator().manual_seed(seed),
    )


def make_loss(env: TransformedEnv) -> SACLoss:
    """SAC's actor, its two critics and its loss."""
    spec = env.action_spec_unbatched
    net = nn.Sequential(MLP(out_features=2 * spec.shape[-1], num_cells=[64, 64]), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=spec,
        distribution_class=TanhNormal,
        distribution_kwargs={"low": spec.space.low, "high": spec.space.high, "tanh_loc": False},
    )
    critic = ValueOperator(MLP(out_features=1, num_cells=[64, 64]), in_keys=["action", "observation"])
    for network in (actor, critic):
        network(env.fake_tensordict())  # makes the lazy layers
    loss = SACLoss(actor, critic, num_qvalue_nets=2, delay_actor=False, delay_qvalue=True)
    loss.make_value_estimator(gamma=0.95)
    return loss


def main(frames: int = 5_000, seed: int = 0, replay: str = "swd") -> list[float]:
    """Train, and return the mean return of each stretch of 1,000 frames."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # networks of this size are faster so
    envs = SerialEnv(NUM_ENVS, lambda: GymEnv("Pendulum-v1"))
    env = TransformedEnv(envs, Compose(InitTracker(), StepCounter(), RewardSum()))
    loss = make_loss(env)
    target = SoftUpdate(loss, eps=0.99)
    optimizer = torch.optim.Adam(loss.parameters(), lr=2e-3)
    buffer = make_buffer(replay, seed)
    collector = Collector(
        env,
        loss.actor_network,
        frames_per_batch=PER_BATCH,
        total_frames=frames,
        init_random_frames=RANDOM_FRAMES,
    )
    collector.set_seed(seed)
    returns: list[float] = []
    ended: list[float] = []
    for number, batch in enumerate(collector, 1):
        ended += batch["next", "episode_reward"][batch["next", "done"]].tolist()
        buffer.extend(batch.reshape(-1))
        if number * PER_BATCH >= RANDOM_FRAMES:
            for _ in range(PER_BATCH):
                losses = loss(buffer.sample())
                optimizer.zero_grad()
                sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
                optimizer.step()
                target.step()
        if number * PER_BATCH % 1_000 == 0:
            returns.append(sum(ended) / len(ended))
            print(f"{number * PER_BATCH:>6} frames  mean return {returns[-1]:8.1f}", flush=True)
            ended = []
    collector.shutdown()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", choices=("swd", "uniform"), default="swd")
    main(**vars(parser.parse_args()))
