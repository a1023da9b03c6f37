"""A batch job over seismic records (CuPy): 16 channels a file, whitened by FFT, their envelopes and triggers.

a: channel by channel. b: all channels of the file together. One step: one file of the folder.
"""

import contextlib
import pathlib
import sys
import tempfile

import cupy as cp
import numpy as np
from clock import run
from cupy.cuda import nvtx

CHANNELS, SAMPLES, FILES = 16, 1 << 17, 8
folder = pathlib.Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
for number in range(FILES):
    record = rng.standard_normal((CHANNELS, SAMPLES), dtype=np.float32)
    record[:, 60_000:64_000] *= 6
    np.save(folder / f"rec_{number:03d}.npy", record)
names = sorted(folder.glob("*.npy"))
frequency = cp.fft.rfftfreq(SAMPLES, 0.01).astype(cp.float32)
band = cp.exp(-(((cp.log(frequency + 1e-6) - cp.log(5.0)) / 0.7) ** 2)).astype(cp.float32)
taper = cp.asarray(np.hanning(SAMPLES), cp.float32)
halves = cp.zeros(SAMPLES, cp.float32)
halves[0] = halves[SAMPLES // 2] = 1
halves[1 : SAMPLES // 2] = 2
rows = {}


@contextlib.contextmanager
def marked(text):
    nvtx.RangePush(text)
    try:
        yield
    finally:
        nvtx.RangePop()


def mean(x, width):
    """Means over windows of `width` samples along the last axis."""
    total = cp.cumsum(x, -1, dtype=cp.float32)
    return (total[..., width:] - total[..., :-width]) / width


def features(record):
    """Peak envelope, its place, the largest trigger ratio and its place, along the last axis."""
    x = (record - record.mean(-1, keepdims=True)) * taper
    spectrum = cp.fft.rfft(x)
    spectrum *= band / (cp.abs(spectrum) + 1e-3 * cp.abs(spectrum).max(-1, keepdims=True))
    x = cp.fft.irfft(spectrum)
    envelope = cp.abs(cp.fft.ifft(cp.fft.fft(x) * halves))
    power = envelope**2
    ratio = mean(power, 200)[..., 3800:] / (mean(power, 4000) + 1e-12)
    places = [x.argmax(-1).astype(cp.float32) for x in (envelope, ratio)]
    return cp.stack([envelope.max(-1), places[0], ratio.max(-1), places[1]], -1)


def step(i):
    name = names[i % FILES]
    with marked(f"file {name.name} features"):
        record = np.load(name)
        if sys.argv[1] == "a":
            table = cp.stack([features(cp.asarray(channel)) for channel in record])
        else:
            table = features(cp.asarray(record))
        rows[name.name] = cp.asnumpy(table)


runtime = cp.cuda.runtime
run(
    step,
    warm=3,
    timed=5,
    recorded=12,
    sync=runtime.deviceSynchronize,
    start=runtime.profilerStart,
    stop=runtime.profilerStop,
)
