"""What can be set of each agent, with the paper's numbers as defaults. No JAX here: the command line reads it first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from neoteny.errors import UsageError

Network = Literal["mlp", "simba", "layernorm", "crelu", "spectral", "simbav2"]
"""The networks that --network chooses from: see docs/training.md."""
AUTO: Any = "auto"
"""A number that follows from the environment; `neoteny.settings.automatic` finds it before a run starts."""
if TYPE_CHECKING:
    FloatOrAuto: TypeAlias = float
    IntOrAuto: TypeAlias = int
else:
    FloatOrAuto, IntOrAuto = float | Literal["auto"], int | Literal["auto"]


def _check(config: object) -> None:
    """Refuse what no agent can run with."""
    least = {
        "batch_size": 1,
        "learning_starts": 1,
        "policy_delay": 1,
        "target_every": 1,
        "num_critics": 1,
        "num_bins": 1,
        "actor_width": 1,
        "critic_width": 1,
        "cnn_width": 1,
        "actor_blocks": 0,
        "critic_blocks": 0,
    }
    for name, value in vars(config).items():
        flag = "--" + name.replace("_", "-")
        if value in (AUTO, None):
            continue
        if name in least and value < least[name]:
            raise UsageError(f"{flag} must be >= {least[name]}, got {value}")
        if name in ("gamma", "tau", "epsilon_start", "epsilon_end", "exploration_fraction") and not 0 <= value <= 1:
            raise UsageError(f"{flag} must be in [0, 1], got {value}")
        if name in ("lr", "lr_end", "actor_lr", "critic_lr", "alpha", "utd", "value_range") and not 0 < value < float(
            "inf"
        ):
            raise UsageError(f"{flag} must be a finite number > 0, got {value}")
        if name == "weight_decay" and not 0 <= value < float("inf"):
            raise UsageError(f"{flag} must be a finite number >= 0, got {value}")


class Facts:
    """What is specific to an agent and is not set: the rest of Neoteny reads it and does not ask which agent it is."""

    name: ClassVar[str]
    """What the command line calls it."""
    discrete: ClassVar[bool]
    """Whether its actions are discrete; else they are a bounded vector."""
    pixels: ClassVar[bool]
    """Whether it takes stacked frames as well as vectors."""
    usual_steps: ClassVar[int]
    """Steps of the paper's runs: what a run has if nothing else is asked for."""
    usual_decay_steps: ClassVar[int]
    """The paper's T."""
    usual_eval_every: ClassVar[int]
    """Steps between evaluations if nothing else is asked for."""
    one_thread: ClassVar[bool]
    """Whether one maths thread is best for it; else it is every core allowed."""
    for_vectors: ClassVar[tuple[str, ...]] = ()
    """Its settings that count only for observations that are vectors."""
    for_pixels: ClassVar[tuple[str, ...]] = ()
    """Its settings that count only for pixels."""

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class TD3Config(Facts):
    """TD3; SWD (ICLR 2026), Tables 3 and 9, else CleanRL's."""

    name: ClassVar = "td3"
    discrete: ClassVar = False
    pixels: ClassVar = False
    usual_steps: ClassVar = 1_000_000
    usual_decay_steps: ClassVar = 100_000
    usual_eval_every: ClassVar = 10_000
    one_thread: ClassVar = True
    widths: tuple[int, ...] = (256, 128)
    """Hidden layers of actor and critics; of simba and simbav2 the blocks, which have one width."""
    network: Network = "mlp"
    """What actor and critics are made of."""
    actor_lr: float = 1e-4
    """Adam's learning rate for the actor."""
    critic_lr: float = 1e-3
    """Adam's learning rate for the critics."""
    gamma: float = 0.99
    """The discount."""
    batch_size: int = 128
    """Transitions in each update."""
    tau: float = 0.005
    """How far the targets move at each of their updates."""
    policy_delay: int = 2
    """Critic updates for each update of the actor and of all targets."""
    target_noise: float = 0.2
    """Noise on the target's action, over the action scale."""
    target_noise_clip: float = 0.5
    """Where that noise is clipped."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on the agent's own actions, over the action scale."""
    learning_starts: int = 25_000
    """Steps of random actions before the first update."""
    utd: float = 1.0
    """Updates for each step."""
    weight_decay: float = 0.0
    """AdamW's weight decay; 0 is Adam."""


@dataclass(frozen=True)
class SACConfig(Facts):
    """SAC with SimBa; SWD (ICLR 2026), Tables 6 to 8 and 11, else SimBa's.

    The paper's text gives no length of SAC's runs: the authors' release trains 1,000,000 decisions on DeepMind Control,
    at an action repeat of 2, and plots its returns against them.
    """

    name: ClassVar = "sac"
    discrete: ClassVar = False
    pixels: ClassVar = False
    usual_steps: ClassVar = 1_000_000
    usual_decay_steps: ClassVar = 80_000
    usual_eval_every: ClassVar = 10_000
    one_thread: ClassVar = False
    actor_width: int = 128
    """The actor's width: of SimBa's blocks, or of every hidden layer."""
    actor_blocks: int = 1
    """SimBa's residual blocks in the actor; networks without blocks have one hidden layer more than that."""
    critic_width: int = 512
    """The critics' width."""
    critic_blocks: int = 2
    """SimBa's residual blocks in the critics; as for the actor."""
    network: Network = "simba"
    """What actor and critics are made of."""
    num_critics: IntOrAuto = 2
    """Critics; targets and actor use the smallest value. auto: 1 for DeepMind Control, where episodes do not terminate,
    else 2."""
    num_bins: int = 1
    """Bins of distributional critics, such as 101; 1 for critics that give a value."""
    value_range: float = 5.0
    """The values that bins and scaled rewards are made for: from minus this to this."""
    scale_rewards: bool = False
    """Whether rewards are scaled by running statistics of the returns, updated by interaction only."""
    lr: float = 1e-4
    """AdamW's learning rate for actor and critics, Adam's for alpha."""
    lr_end: float | None = None
    """The learning rate at the end of the run, to which it goes linearly; if not given it stays."""
    weight_decay: float = 1e-2
    """AdamW's weight decay (alpha has none)."""
    gamma: FloatOrAuto = 0.99
    """The discount. auto: 1 - 5 / the decisions in an episode, but from 0.95 to 0.995."""
    batch_size: int = 256
    """Transitions in each update."""
    tau: float = 0.005
    """How far the targets move at each update."""
    policy_delay: int = 2
    """Critic updates between updates of actor and alpha, which then make as many to compensate."""
    actor_first: bool = False
    """Whether an update begins with actor and alpha; else with the critics."""
    alpha: float = 1.0
    """The entropy's weight, to begin with."""
    tune_alpha: bool = True
    """Whether alpha is tuned towards the target entropy."""
    target_entropy: float = -1.0
    """The target entropy, times the number of actions."""
    log_std_min: float = -5.0
    """Lower bound of the policy's log standard deviation."""
    log_std_max: float = 2.0
    """Upper bound of the policy's log standard deviation."""
    normalise: bool = True
    """Whether observations are normalised by running statistics (RSNorm), updated by interaction only."""
    learning_starts: int = 5_000
    """Steps of random actions before the first update."""
    utd: FloatOrAuto = 1.0
    """Updates for each step. auto: the action repeat, which makes one for each step of the simulator."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_range != type(self).value_range and self.num_bins == 1 and not self.scale_rewards:
            raise UsageError("--value-range is for --num-bins or --scale-rewards, and neither is asked for")


@dataclass(frozen=True)
class DDQNConfig(Facts):
    """Double DQN; SWD (ICLR 2026), Tables 4, 5 and 10, else CleanRL's. Pixels go through the Nature CNN."""

    name: ClassVar = "ddqn"
    discrete: ClassVar = True
    pixels: ClassVar = True
    usual_steps: ClassVar = 10_000_000
    usual_decay_steps: ClassVar = 80_000
    usual_eval_every: ClassVar = 250_000
    one_thread: ClassVar = False
    for_vectors: ClassVar = ("widths",)
    for_pixels: ClassVar = ("cnn_width",)
    widths: tuple[int, ...] = (120, 84)
    """Hidden layers for vector observations; of simba and simbav2 the blocks, which have one width."""
    cnn_width: int = 512
    """The dense layer after the convolutions, for pixels."""
    network: Network = "mlp"
    """What it is made of; for pixels mlp is the Nature CNN, and simba and simbav2 are not."""
    lr: float = 1e-4
    """Adam's learning rate."""
    gamma: float = 0.99
    """The discount."""
    batch_size: int = 32
    """Transitions in each update."""
    target_every: int = 1_000
    """Steps between copies of the network into its target."""
    epsilon_start: float = 1.0
    """The share of random actions at the first step."""
    epsilon_end: float = 0.01
    """The share of random actions after the exploration phase."""
    exploration_fraction: float = 0.1
    """The part of the run over which epsilon falls."""
    learning_starts: int = 80_000
    """Steps before the first update."""
    utd: float = 0.25
    """Updates for each step: 0.25 is one every 4."""
    weight_decay: float = 0.0
    """AdamW's weight decay; 0 is Adam."""


AgentConfig = TD3Config | SACConfig | DDQNConfig

AGENTS: dict[str, type[TD3Config | SACConfig | DDQNConfig]] = {
    kind.name: kind for kind in (TD3Config, SACConfig, DDQNConfig)
}

_SWD_CODE = replace(SACConfig(), alpha=0.2, tune_alpha=False)
_SIMBA = replace(
    SACConfig(), num_critics=1, alpha=0.01, target_entropy=-0.5, utd=2.0, log_std_min=-10.0, policy_delay=1
)
_SIMBAV2 = replace(
    _SIMBA,
    network="simbav2",
    num_critics=AUTO,
    num_bins=101,
    scale_rewards=True,
    lr_end=5e-5,
    weight_decay=0.0,
    gamma=AUTO,
    utd=AUTO,
    actor_first=True,
)

PRESETS: dict[str, dict[str, AgentConfig]] = {
    "td3": {"swd-paper": TD3Config()},
    "sac": {"swd-paper": SACConfig(), "swd-code": _SWD_CODE, "simba": _SIMBA, "simbav2": _SIMBAV2, "fog": _SIMBA},
    "ddqn": {"swd-paper": DDQNConfig()},
}
"""Each agent's presets: the paper's tables, the authors' released code, SimBa's and SimBaV2's own."""
