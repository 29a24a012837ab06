"""CUDA source of the kernels for softmax, norms, top-k and Welch estimates on CuPy.

`T` is float or double. Lanes of a block walk a line together and meet in shared memory;
a block has a power of two of them, 256 at most. `HIP` compiles the text as it is. It
has been compiled for sm_90 and run on the host, block by block; never on a GPU yet.
"""

from __future__ import annotations

MAX_BLOCK_THREADS = 256

_BLOCK_SUM = """
typedef long long wide;

__device__ T sum_of(T mine, T* cells) {
    int lane = threadIdx.x;
    cells[lane] = mine;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) cells[lane] += cells[lane + half];
    }
    __syncthreads();
    T all = cells[0];
    __syncthreads();
    return all;
}
"""

# exp(x - max) of a NaN or of inf - inf is NaN and so is the sum: max may pass NaN over.
_SOFTMAX = """
extern "C" __global__ void softmax(const T* x, T* out, wide n) {
    __shared__ T cells[256];
    int lane = threadIdx.x;
    const T* row = x + blockIdx.x * n;
    T* made = out + blockIdx.x * n;
    T most = row[0];
    for (wide i = lane; i < n; i += blockDim.x) most = row[i] > most ? row[i] : most;
    cells[lane] = most;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half && cells[lane + half] > cells[lane])
            cells[lane] = cells[lane + half];
    }
    __syncthreads();
    most = cells[0];
    __syncthreads();
    T mine = 0;
    for (wide i = lane; i < n; i += blockDim.x) {
        T e = exp(row[i] - most);
        made[i] = e;
        mine += e;
    }
    T all = sum_of(mine, cells);
    for (wide i = lane; i < n; i += blockDim.x) made[i] /= all;
}
"""

_NORM = """
extern "C" __global__ void normed(const T* x, const T* gamma, const T* beta, T* out,
                                  wide n, double eps, wide centred) {
    __shared__ T cells[256];
    int lane = threadIdx.x;
    const T* row = x + blockIdx.x * n;
    T mean = 0, mine = 0;
    if (centred) {
        for (wide i = lane; i < n; i += blockDim.x) mine += row[i];
        mean = sum_of(mine, cells) / T(n);
        mine = 0;
    }
    for (wide i = lane; i < n; i += blockDim.x) {
        T far = row[i] - mean;
        mine += far * far;
    }
    T root = sqrt(sum_of(mine, cells) / T(n) + T(eps));
    for (wide i = lane; i < n; i += blockDim.x)
        out[blockIdx.x * n + i] = (row[i] - mean) / root * gamma[i] + beta[i];
}
"""

# The k best by k searches, each for the first after the last one found: k is small and
# the line stays in cache. A NaN comes after every number, ties in order of place.
_TOP_K = """
__device__ bool before(T a, wide i, T b, wide j) {
    bool no_a = a != a, no_b = b != b;
    if (no_a != no_b) return no_b;
    if (no_a || a == b) return i < j;
    return a > b;
}

__device__ wide next_after(const T* row, wide n, wide last, wide* cells) {
    int lane = threadIdx.x;
    wide best = -1;
    for (wide i = lane; i < n; i += blockDim.x) {
        if (last >= 0 && !before(row[last], last, row[i], i)) continue;
        if (best < 0 || before(row[i], i, row[best], best)) best = i;
    }
    cells[lane] = best;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) {
            wide a = cells[lane], b = cells[lane + half];
            if (b >= 0 && (a < 0 || before(row[b], b, row[a], a))) cells[lane] = b;
        }
    }
    __syncthreads();
    best = cells[0];
    __syncthreads();
    return best;
}

extern "C" __global__ void strongest_pairs(const T* x, T* out, wide n, wide k) {
    __shared__ wide cells[256];
    const T* row = x + blockIdx.x * n;
    wide found = -1;
    for (wide j = 0; j < k; ++j) {
        found = next_after(row, n, found, cells);
        if (threadIdx.x == 0) {
            out[2 * (blockIdx.x * k + j)] = T(found);
            out[2 * (blockIdx.x * k + j) + 1] = row[found];
        }
    }
}

extern "C" __global__ void strongest_places(const T* x, int* out, wide n, wide k) {
    __shared__ wide cells[256];
    const T* row = x + blockIdx.x * n;
    wide found = -1;
    for (wide j = 0; j < k; ++j) {
        found = next_after(row, n, found, cells);
        if (threadIdx.x == 0) out[blockIdx.x * k + j] = int(found);
    }
}
"""

# detrend: 0 none, 1 constant, 2 linear; a ramp has mean 0 and unit energy.
_FRAMES = """
extern "C" __global__ void welch_frames(
        const T* x, const T* window, const T* ramp, T* out, wide width, wide n,
        wide hop, wide first, wide count, wide nfft, wide detrend) {
    __shared__ T cells[256];
    int lane = threadIdx.x;
    wide row = blockIdx.x / count, segment = first + blockIdx.x % count;
    const T* frame = x + row * width + segment * hop;
    T* made = out + blockIdx.x * nfft;
    T mean = 0, slope = 0, mine = 0;
    if (detrend > 0) {
        // About its first value a segment's sum keeps its bits, whatever the offset.
        T near = frame[0];
        for (wide i = lane; i < n; i += blockDim.x) mine += frame[i] - near;
        mean = near + sum_of(mine, cells) / T(n);
    }
    if (detrend > 1) {
        mine = 0;
        for (wide i = lane; i < n; i += blockDim.x) mine += (frame[i] - mean) * ramp[i];
        slope = sum_of(mine, cells);
    }
    for (wide i = lane; i < nfft; i += blockDim.x) {
        T value = 0;
        if (i < n) {
            value = frame[i] - mean;
            if (detrend > 1) value -= slope * ramp[i];
            value *= window[i];
        }
        made[i] = value;
    }
}
"""

# A block has 32 bins of a row, and a lane for each and every 8th segment (of 256).
_MEAN_POWER = """
extern "C" __global__ void welch_mean(
        const T* z, double* total, T* out, wide bins, wide count, wide start,
        wide stop, double factor, wide begins, wide ends) {
    __shared__ double cells[256];
    int lane = threadIdx.x, turns = blockDim.x / 32;
    wide tiles = (bins + 31) / 32;
    wide row = blockIdx.x / tiles, bin = blockIdx.x % tiles * 32 + lane % 32;
    double mine = 0;
    if (bin < bins)
        for (wide s = lane / 32; s < count; s += turns) {
            const T* at = z + 2 * ((row * count + s) * bins + bin);
            mine += double(at[0] * at[0] + at[1] * at[1]);
        }
    cells[lane] = mine;
    __syncthreads();
    if (lane >= 32 || bin >= bins) return;
    for (int turn = 1; turn < turns; ++turn) mine += cells[lane + 32 * turn];
    if (!begins) mine += total[row * bins + bin];
    if (!ends) total[row * bins + bin] = mine;
    double weight = bin >= start && bin < stop ? 2 * factor : factor;
    if (ends) out[row * bins + bin] = T(mine * weight);
}
"""


def cuda_source(element_type: str) -> str:
    """Return all kernels for elements of "float" or "double", as one module."""
    parts = (_BLOCK_SUM, _SOFTMAX, _NORM, _TOP_K, _FRAMES, _MEAN_POWER)
    return f"typedef {element_type} T;\n" + "".join(parts)
