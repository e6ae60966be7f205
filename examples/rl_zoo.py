"""A configuration for RL Zoo: its own Pendulum numbers, with age-weighted replay and measures of plasticity.

pip install '.[sb3]' rl_zoo3   # in a clone of Neoteny
python -m rl_zoo3.train --algo sac --env Pendulum-v1 --conf-file examples/rl_zoo.py
"""

from neoteny.integrations.sb3 import AgeWeightedReplayBuffer, PlasticityCallback

hyperparams = {
    "Pendulum-v1": {
        "n_timesteps": 20_000,
        "policy": "MlpPolicy",
        "learning_rate": 1e-3,
        "replay_buffer_class": AgeWeightedReplayBuffer,
        "replay_buffer_kwargs": {"decay_steps": 10_000},
        "callback": [PlasticityCallback(probe_freq=1_000)],
    }
}
