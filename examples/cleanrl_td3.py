"""TD3 in one file, in the manner of CleanRL, with SWD by hand: the three lines marked SWD, and no others, are ours.

pip install . torch gymnasium   # in a clone of Neoteny
python examples/cleanrl_td3.py --steps 8000
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

import neoteny  # SWD 1

BATCH, GAMMA, TAU, CAPACITY, LEARNING_STARTS, NOISE = 128, 0.99, 0.005, 100_000, 500, 0.1


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


def main(steps: int = 8_000, seed: int = 1, env_id: str = "Pendulum-v1") -> list[float]:
    """Train, and give the return of each episode."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make(env_id)
    space = env.action_space
    num_obs, num_actions, scale = env.observation_space.shape[0], space.shape[0], float(space.high[0])
    actor, critics = mlp(num_obs, num_actions), [mlp(num_obs + num_actions, 1) for _ in range(2)]
    actor_target, critic_targets = mlp(num_obs, num_actions), [mlp(num_obs + num_actions, 1) for _ in range(2)]
    pairs = [(actor, actor_target), *zip(critics, critic_targets, strict=True)]
    for network, target in pairs:
        target.load_state_dict(network.state_dict())
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam([p for critic in critics for p in critic.parameters()], lr=1e-3)

    sizes = {"obs": num_obs, "action": num_actions, "reward": 1, "next_obs": num_obs, "terminated": 1}
    buffer = {name: np.zeros((CAPACITY, size), np.float32) for name, size in sizes.items()}
    sampler = neoteny.AgeWeightedSampler(decay_steps=5_000)  # SWD 2
    obs, _ = env.reset(seed=seed)
    returns, total = [], 0.0
    for step in range(steps):
        if step < LEARNING_STARTS:
            action = rng.uniform(-scale, scale, num_actions)
        else:
            with torch.no_grad():
                action = actor(torch.as_tensor(obs, dtype=torch.float32)).tanh().numpy() * scale
            action = (action + rng.normal(0, NOISE * scale, num_actions)).clip(-scale, scale)
        next_obs, reward, terminated, truncated, _ = env.step(action.astype(np.float32))
        values = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, "terminated": terminated}
        for name, value in values.items():
            buffer[name][step % CAPACITY] = value
        obs, total = next_obs, total + float(reward)
        if terminated or truncated:
            obs, _ = env.reset()
            returns.append(total)
            total = 0.0
        if step < LEARNING_STARTS:
            continue

        stored, head = min(step + 1, CAPACITY), (step + 1) % CAPACITY
        # slots = rng.integers(0, stored, BATCH)
        slots = sampler.slots(rng, BATCH, num_stored=stored, head=head, capacity=CAPACITY)  # SWD 3, for the line above
        data = {name: torch.as_tensor(values[slots]) for name, values in buffer.items()}
        with torch.no_grad():
            smooth = (torch.randn_like(data["action"]) * 0.2).clamp(-0.5, 0.5) * scale
            after = (actor_target(data["next_obs"]).tanh() * scale + smooth).clamp(-scale, scale)
            joined = torch.cat([data["next_obs"], after], 1)
            least = torch.min(*(target(joined) for target in critic_targets))
            wanted = data["reward"] + GAMMA * (1 - data["terminated"]) * least
        taken = torch.cat([data["obs"], data["action"]], 1)
        loss = sum(mse_loss(critic(taken), wanted) for critic in critics)
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        if step % 2 == 0:
            worth = critics[0](torch.cat([data["obs"], actor(data["obs"]).tanh() * scale], 1)).mean()
            actor_optimizer.zero_grad()
            (-worth).backward()
            actor_optimizer.step()
            with torch.no_grad():
                for network, target in pairs:
                    for p, q in zip(network.parameters(), target.parameters(), strict=True):
                        q.lerp_(p, TAU)
        if step % 1_000 == 0:
            print(f"step {step:>6}  return of the last 5 episodes {np.mean(returns[-5:]):8.1f}")
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=1)
    main(**vars(parser.parse_args()))
