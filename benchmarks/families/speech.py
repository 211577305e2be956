"""Networks for speech and time series."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from families.layers import Attention, mlp
from families.network import DYNAMIC, TORCHSCRIPT, Network, constant, real

FAMILY = "speech and series"


class Recurrent(nn.Module):
    """Speech recognizer: convolutions, then GRU, LSTM or RNN over any number of steps, then letters."""

    def __init__(self, kind: type[nn.RNNBase], *, both_ways: bool, layers: int = 2) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(40, 64, 5, 2, 2), nn.BatchNorm1d(64), nn.ReLU())
        self.rnn = kind(64, 64, layers, batch_first=True, bidirectional=both_ways)
        self.head = nn.Linear(128 if both_ways else 64, 30)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.rnn(self.conv(x).transpose(1, 2))
        return self.head(y).log_softmax(-1)


class OneRate(nn.Module):
    """Voice activity detector for one sampling rate: a spectrum by convolution, then an LSTM with its state."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window
        self.spectrum = nn.Conv1d(1, window + 2, window, window // 2, bias=False)
        self.convs = nn.Sequential(nn.Conv1d(window // 2 + 1, 32, 3, 2, 1), nn.ReLU(), nn.Conv1d(32, 32, 3, 2, 1))
        self.cell = nn.LSTMCell(32, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        padded = functional.pad(x.unsqueeze(1), [0, self.window // 4], mode="reflect")
        waves = self.spectrum(padded)
        half = self.window // 2 + 1
        y = self.convs((waves[:, :half] ** 2 + waves[:, half:] ** 2).sqrt())
        h, c = self.cell(y.mean(-1), (state[0], state[1]))
        return self.head(h.relu()).sigmoid(), torch.stack((h, c))


class SpeechActivity(nn.Module):
    """Two detectors in one network, selected by the sampling rate, which is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.fast, self.slow = OneRate(256), OneRate(128)

    def forward(self, x: Tensor, state: Tensor, sr: Tensor) -> tuple[Tensor, Tensor]:
        return self.fast(x, state) if sr == 16000 else self.slow(x, state)


def vocoder() -> nn.Module:
    """Build a vocoder: transposed convolutions expand a spectrogram to sound (Kong et al. 2020)."""
    layers: list[nn.Module] = [nn.Conv1d(40, 64, 7, 1, 3)]
    for inputs, outputs, times in ((64, 32, 8), (32, 16, 8)):
        layers += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(inputs, outputs, 2 * times, times, times // 2)]
        layers += [nn.LeakyReLU(0.1), nn.Conv1d(outputs, outputs, 7, 1, 9, 3)]
    return nn.Sequential(*layers, nn.LeakyReLU(), nn.Conv1d(16, 1, 7, 1, 3), nn.Tanh())


class Conformer(nn.Module):
    """Conformer block: attention, then gated depthwise convolutions (Gulati et al. 2020)."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.into = nn.Linear(40, width)
        self.mlp, self.attention = mlp(width, 4 * width, nn.SiLU), Attention(width, 4)
        self.gated = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Sequential(
            nn.Conv1d(width, width, 15, 1, 7, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        x = x + 0.5 * self.mlp(self.norms[0](x))
        x = x + self.attention(self.norms[1](x))
        y = functional.glu(self.gated(self.norms[2](x).transpose(1, 2)), 1)
        return self.norms[3](x + self.depthwise(y).transpose(1, 2))


class Spectrum(nn.Module):
    """Logarithmic spectrogram of sound, by a short-time Fourier transform."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        self.register_buffer("tones", torch.rand(129, 40))

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.stft(x, 256, 128, window=self.window, center=False, return_complex=False)
        return torch.log((parts**2).sum(-1).transpose(1, 2) @ self.tones + 1e-3)


SOUND = {"x": real("batch", 40, "length")}
LENGTHS = ({"batch": 2, "length": 50}, {"batch": 1, "length": 80})

NETWORKS = [
    # torch.export supports no recurrent layer with a dynamic number of steps.
    *(
        Network(
            FAMILY,
            f"convolution and {kind.__name__}",
            partial(Recurrent, kind, both_ways=kind is not nn.RNN),
            SOUND,
            LENGTHS,
            exporters=(TORCHSCRIPT,),
            formats=(DYNAMIC,) if kind is nn.LSTM else (),
        )
        for kind in (nn.GRU, nn.LSTM, nn.RNN)
    ),
    Network(
        FAMILY,
        "speech activity",
        lambda: torch.jit.script(SpeechActivity()),
        {"x": real("batch", 512), "state": real(2, "batch", 32), "sr": constant(16000)},
        ({"batch": 2}, {"batch": 1}),
        exporters=(TORCHSCRIPT,),
        outputs=("y", "state_out"),
        constants={"sr": 16000},
    ),
    Network(FAMILY, "vocoder", vocoder, SOUND, ({"batch": 2, "length": 20}, {"batch": 1, "length": 32})),
    Network(FAMILY, "Conformer", Conformer, {"x": real("batch", "length", 40)}, LENGTHS),
    Network(
        FAMILY,
        "spectrum",
        Spectrum,
        {"x": real("batch", "length")},
        ({"batch": 2, "length": 2048}, {"batch": 1, "length": 4000}),
    ),
]
