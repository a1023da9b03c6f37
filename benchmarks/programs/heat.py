"""Implicit time steps of nonlinear heat conduction on a 4096 x 2048 plate in CUDA C++, with a source that moves.

a: each time step copies from and to ordinary memory and synchronizes the device.
b: it copies with a stream of its own from and to pinned memory, and events keep the order.
One step is one time step: 4 cycles of a conductivity kernel and 9 sweeps, so 40 kernels; a source goes in, a strip out.
This file builds the program in $TMPDIR if it is not there yet, and then becomes it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

source = r"""
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

const int nx = 4096, ny = 2048, cells = nx * ny, strip = nx * 256;

__global__ void conductivity(const double* t, double* c) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < cells) c[k] = 0.2 + 0.1 * exp(-t[k]) + 0.01 * log1p(fabs(t[k]));
}

__global__ void sweep(const double* t, const double* c, const float* heat, double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, k = j * nx + i;
    if (i < 1 || j < 1 || i >= nx - 1 || j >= ny - 1) return;
    double w = c[k - 1], e = c[k + 1], s = c[k - nx], n = c[k + nx], own = c[k];
    w = 2 * w * own / (w + own), e = 2 * e * own / (e + own), s = 2 * s * own / (s + own), n = 2 * n * own / (n + own);
    double sum = w * t[k - 1] + e * t[k + 1] + s * t[k - nx] + n * t[k + nx] + t[k] + heat[k];
    out[k] = sum / (1 + w + e + s + n);
}

double *t, *u, *c;
float *heat[2], *host[4];
double* row;
cudaStream_t work, copies;
cudaEvent_t loaded[2], used[2];
bool async;

void solve(const float* heat) {
    for (int cycle = 0; cycle < 4; ++cycle) {
        conductivity<<<cells / 256, 256, 0, work>>>(t, c);
        for (int k = 0; k < 9; ++k) {
            sweep<<<dim3(nx / 32, ny / 8), dim3(32, 8), 0, work>>>(t, c, heat, u);
            std::swap(t, u);
        }
    }
}

void step(int i) {
    int slot = i % 2;
    if (!async) {
        cudaMemcpy(heat[0], host[i % 4], cells * sizeof(float), cudaMemcpyHostToDevice);
        solve(heat[0]);
        cudaDeviceSynchronize();
        cudaMemcpy(row, t + cells / 2, strip * sizeof(double), cudaMemcpyDeviceToHost);
        return;
    }
    cudaStreamWaitEvent(copies, used[slot]);
    cudaMemcpyAsync(heat[slot], host[i % 4], cells * sizeof(float), cudaMemcpyHostToDevice, copies);
    cudaEventRecord(loaded[slot], copies);
    cudaStreamWaitEvent(work, loaded[slot]);
    solve(heat[slot]);
    cudaEventRecord(used[slot], work);
    cudaMemcpyAsync(row, t + cells / 2, strip * sizeof(double), cudaMemcpyDeviceToHost, work);
}

void run(const char* what, int first, int count) {
    using namespace std::chrono;
    cudaDeviceSynchronize();
    std::vector<double> times;
    auto begin = steady_clock::now(), last = begin;
    for (int i = first; i < first + count; ++i) {
        step(i);
        auto now = steady_clock::now();
        times.push_back(duration<double, std::milli>(now - last).count());
        last = now;
    }
    cudaDeviceSynchronize();
    double mean = duration<double, std::milli>(steady_clock::now() - begin).count() / count;
    std::sort(times.begin(), times.end());
    printf("TIME %s steps %d mean %.3f median_host %.3f ms\n", what, count, mean, times[count / 2]);
}

template <typename T> T* memory(size_t count) {
    void* p = nullptr;
    if (async) cudaMallocHost(&p, count * sizeof(T)); else p = malloc(count * sizeof(T));
    return static_cast<T*>(p);
}

int main(int count, char** words) {
    async = count > 1 && words[1][0] == 'b';
    const char* capture = getenv("CAPTURE");
    bool window = !capture || strcmp(capture, "whole");
    int warm = 3, timed = 20, recorded = 25;
    if (getenv("QUICK")) warm = timed = recorded = 2;
    for (double** p : {&t, &u, &c}) cudaMalloc(p, cells * sizeof(double)), cudaMemset(*p, 0, cells * sizeof(double));
    for (float** p : {heat, heat + 1}) cudaMalloc(p, cells * sizeof(float));
    for (int k = 0; k < 4; ++k) {
        host[k] = memory<float>(cells);
        for (int i = 0; i < cells; ++i) host[k][i] = (i / 4096 + k) % 7 * 0.01f;
    }
    row = memory<double>(strip);
    cudaStreamCreate(&work), cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
    for (cudaEvent_t* e : {loaded, loaded + 1, used, used + 1}) cudaEventCreateWithFlags(e, cudaEventDisableTiming);
    for (int i = 0; i < warm; ++i) step(i);
    run("timed", warm, timed);
    if (window) cudaProfilerStart();
    run("recorded", warm + timed, recorded);
    if (window) cudaProfilerStop();
    cudaError_t error = cudaGetLastError();
    if (error) fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return error;
}
"""

folder = Path(tempfile.gettempdir())
program = folder / f"heat-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
if not program.exists():
    code = program.with_suffix(".cu")
    code.write_text(source)
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    subprocess.run([nvcc, "-O3", "-std=c++17", "-arch=native", "-o", program, code], check=True)
os.execv(program, ["heat", sys.argv[1]])
