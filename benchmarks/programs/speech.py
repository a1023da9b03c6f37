"""Training of a speech recognizer: spectrogram, convolution, two recurrent layers and the CTC loss.

a: the recurrent layers are loops over LSTM cells.
b: they are an nn.LSTM.
One step is one batch of 128 utterances of a second: ranges `data`, `forward`, `backward` and `optimizer`.
"""

import sys

import torch
import torch.nn.functional as F
from clock import run
from torch import nn
from torch.cuda import nvtx

dev = "cuda" if torch.cuda.is_available() else "cpu"
batch, rate, hop, letters, length, width = 128, 16000, 160, 29, 10, 512
torch.manual_seed(0)


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(2))

    def forward(self, x):
        for cell in self.cells:
            hidden, outputs = None, []
            for frame in x.unbind():
                hidden = cell(frame, hidden)
                outputs.append(hidden[0])
            x = torch.stack(outputs)
        return x


class Library(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(width, width, 2)

    def forward(self, x):
        return self.lstm(x)[0]


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.conv1 = nn.Conv1d(201, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, 4, padding=2)
        self.recurrent = {"a": Cells, "b": Library}[sys.argv[1]]()
        self.letters = nn.Linear(width, letters)

    def forward(self, waves):
        spectrum = torch.stft(waves, 400, hop, window=self.window, return_complex=True).abs().square()
        x = F.relu(self.conv2(F.relu(self.conv1((spectrum + 1e-6).log()))))
        return F.log_softmax(self.letters(self.recurrent(x.permute(2, 0, 1))), 2)


model = Recognizer().to(dev)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
recordings = [torch.randn(batch, rate).pin_memory() for _ in range(4)]
texts = [torch.randint(1, letters, (batch, length)).pin_memory() for _ in range(4)]
text_lengths = torch.full((batch,), length)


def step(i):
    with nvtx.range("data"):
        waves = recordings[i % 4].to(dev, non_blocking=True)
        text = texts[i % 4].to(dev, non_blocking=True)
        waves = waves * (0.5 + torch.rand(batch, 1, device=dev)) + 0.01 * torch.randn_like(waves)
    with nvtx.range("forward"):
        scores = model(waves)
        loss = F.ctc_loss(scores, text, torch.full((batch,), len(scores)), text_lengths)
    with nvtx.range("backward"):
        optimizer.zero_grad()
        loss.backward()
    with nvtx.range("optimizer"):
        optimizer.step()


run(step, 5, 50, 12)
