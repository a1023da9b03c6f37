"""Jacobi relaxation of a 2048 x 2048 field in CuPy, in cycles of 100 sweeps; every 8th cycle writes the field out.

a: the change of the field is read on the host after every sweep.
b: after the last sweep of a cycle.
One step is one cycle, in a range `cycle`; the sweeps are nested in it.
"""

import sys

import cupy as cp
from clock import run
from cupy.cuda import nvtx
from cupyx.profiler import profile

every = {"a": 1, "b": 100}[sys.argv[1]]
n, sweeps = 2048, 100
jacobi = cp.RawKernel(
    r"""
extern "C" __global__ void jacobi(const double* u, const double* f, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && j > 0 && i < n - 1 && j < n - 1) {
        int k = j * n + i;
        v[k] = 0.25 * (u[k - 1] + u[k + 1] + u[k - n] + u[k + n] + f[k]);
    }
}""",
    "jacobi",
)
u, v = cp.zeros((n, n)), cp.zeros((n, n))
f = cp.random.default_rng(0).random((n, n)) * 1e-6
history, pictures = [], {}


def cycle(c):
    global u, v
    nvtx.RangePush("cycle")
    for sweep in range(1, sweeps + 1):
        jacobi((n // 32, n // 8), (32, 8), (u, f, v, cp.int32(n)))
        u, v = v, u
        if sweep % every == 0:
            history.append(float(cp.abs(u - v).max()))
            if history[-1] < 1e-12:
                break
    nvtx.RangePop()
    if c % 8 == 7:
        nvtx.RangePush("output")
        pictures["last"] = cp.asnumpy(u[::4, ::4])
        nvtx.RangePop()


window = profile()
sync = cp.cuda.Device().synchronize
run(cycle, 3, 24, 16, sync, window.__enter__, lambda: window.__exit__(None, None, None))
