"""Worlds that change while an agent learns; importing this registers them with Gymnasium as ``neoteny/...``."""

from __future__ import annotations

import gymnasium as gym

_DRIFTING = {
    "CartPole": ("drifting", "Force", 500),
    "Acrobot": ("drifting", "Mass", 500),
    "Pendulum": ("drifting", "Gravity", 200),
    "LunarLander": ("lander", "Gravity", 1_000),
}
"""Each task, the module it is in, the constant of its dynamics that drifts, and the steps of an episode."""

for _task, (_module, _constant, _steps) in _DRIFTING.items():
    for _name, _change in (("", "offset"), (_constant, "dynamics")):
        gym.register(
            f"neoteny/Drifting{_task}{_name}-v0",
            entry_point=f"neoteny.worlds.{_module}:Drifting{_task}",
            max_episode_steps=_steps,
            kwargs={"change": _change},
        )

gym.register("neoteny/MinAtarInTurn-v0", entry_point="neoteny.worlds.minatar:GamesInTurn", max_episode_steps=5_000)
