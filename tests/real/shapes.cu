// Shapes of control flow and synchronisation that are legal and that compilers for CPUs get wrong.
// tests/real/test_shapes.py has the references.
#define BARRIER(text) asm volatile(text ::: "memory")

// A barrier guarded by i == 0 in a loop of 1 + thread turns: every thread meets it once, in its first turn.
extern "C" __global__ void guarded_in_a_loop(const int *turns, int *out)
{
    __shared__ int shared[64];
    int t = threadIdx.x, n = turns[t], sum = 0;
    shared[t] = t * 10;
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        if (i == 0) BARRIER("bar.sync 0;");
        sum += shared[(t + 1 + i) % 64];
    }
    out[t] = sum;
}

// Barriers in both arms of a branch that parts the warps, and one that parts the lanes of every warp.
extern "C" __global__ void in_both_arms(int *out, int odd_lanes)
{
    __shared__ int shared[64];
    int t = threadIdx.x, value;
    shared[t] = t + 1;
    bool first = odd_lanes ? t & 1 : t < 32;
    if (first) {
        BARRIER("barrier.sync 0;");
        value = shared[63 - t] * 2;
        BARRIER("barrier.sync 0;");
        shared[t] = value;
    } else {
        BARRIER("barrier.sync 0;");
        value = shared[63 - t] * 3;
        BARRIER("barrier.sync 0;");
        shared[t] = -value;
    }
    BARRIER("barrier.sync 0;");
    out[t] = shared[(t + 7) % 64];
}

// The last threads leave before the barrier that the others meet.
extern "C" __global__ void after_an_early_exit(int *out, int stay)
{
    __shared__ int shared[64];
    int t = threadIdx.x;
    shared[t] = t;
    out[t] = -1;
    if (t >= stay) return;
    __syncthreads();
    out[t] = shared[(t + 1) % stay];
}

// Barriers under conditions that are the same for the whole block, in loops within loops.
extern "C" __global__ void nested_and_uniform(const int *plan, int *out, int rows, int columns)
{
    __shared__ int shared[96];
    int t = threadIdx.x;
    shared[t] = t;
    __syncthreads();
    for (int i = 0; i < rows; i++) {
        if (plan[i * columns] < 0) continue;
        for (int k = 0; k < columns; k++) {
            int step = plan[i * columns + k];
            if (step > 0) {
                int next = shared[(t + step) % 96];
                __syncthreads();
                shared[t] = next + 1;
                __syncthreads();
                if (step > 5) {
                    next = shared[95 - t];
                    __syncthreads();
                    shared[t] += next;
                    __syncthreads();
                }
            } else if (step < 0) break;
        }
    }
    out[t] = shared[t];
}

// A lock that the lanes of a warp contend for: each tries, and goes round again if it lost.
extern "C" __global__ void lock_and_try_again(int *lock, volatile int *counter)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *counter = *counter + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// The same in its plain form: a lane that lost spins for itself, while the holder has to go on.
extern "C" __global__ void lock_and_spin(int *lock, volatile int *counter)
{
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *counter = *counter + 1;
    __threadfence();
    atomicExch(lock, 0);
}

// A ticket lock among the lanes: they enter in the order of their tickets, whatever that is.
extern "C" __global__ void tickets(int *next, volatile int *serving, int *order)
{
    int mine = atomicAdd(next, 1);
    while (*serving != mine) {}
    order[mine] = threadIdx.x + blockIdx.x * blockDim.x;
    __threadfence();
    *serving = mine + 1;
}

// Two warps fill two buffers in turns, two others empty them; only those who need something wait for it.
extern "C" __global__ void producers_and_consumers(const int *in, int *out, int turns)
{
    __shared__ int buffer[2][64];
    int t = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        for (int k = 0; k < turns; k++) {
            if (k >= 2) {
                if (k % 2) BARRIER("barrier.sync 4, 128;");
                else BARRIER("barrier.sync 3, 128;");
            }
            buffer[k % 2][t] = in[k * 64 + t];
            __threadfence_block();
            if (k % 2) BARRIER("barrier.arrive 2, 128;");
            else BARRIER("barrier.arrive 1, 128;");
        }
    } else {
        for (int k = 0; k < turns; k++) {
            if (k % 2) BARRIER("barrier.sync 2, 128;");
            else BARRIER("barrier.sync 1, 128;");
            out[k * 64 + t] = buffer[k % 2][63 - t] + k;
            if (k + 2 < turns) {
                if (k % 2) BARRIER("barrier.arrive 4, 128;");
                else BARRIER("barrier.arrive 3, 128;");
            }
        }
    }
}

// Half of the warps synchronise by a barrier of their own, as often as they like; the number is in a register.
extern "C" __global__ void barriers_by_number(int *out)
{
    __shared__ int shared[128];
    int t = threadIdx.x, half = t / 64, rounds = half ? 5 : 2;
    shared[t] = t;
    for (int k = 0; k < rounds; k++) {
        asm volatile("barrier.sync %0, 64;" ::"r"(half + 1) : "memory");
        int next = shared[half * 64 + (t + 1) % 64];
        asm volatile("barrier.sync %0, 64;" ::"r"(half + 1) : "memory");
        shared[t] = next;
    }
    out[t] = shared[t];
}

// A value goes from warp to warp, backwards, by volatile flags in shared memory.
extern "C" __global__ void flags_between_warps(int *out)
{
    __shared__ volatile int flag[9], value[9];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < 9) flag[threadIdx.x] = threadIdx.x == 8;
    if (threadIdx.x == 8) value[8] = 1;
    __syncthreads();
    if (lane == 0) {
        while (flag[warp + 1] == 0) {}
        __threadfence_block();
        value[warp] = value[warp + 1] * 3 + warp;
        __threadfence_block();
        flag[warp] = 1;
    }
    __syncthreads();
    out[threadIdx.x] = value[warp] + lane;
}

// Lanes of one warp wait for each other, the lower for the higher.
extern "C" __global__ void flags_between_lanes(volatile int *flag, int *out)
{
    int lane = threadIdx.x;
    if (lane < 31) while (flag[lane + 1] == 0) {}
    out[lane] = 31 - lane == 0 ? 1 : flag[lane + 1] + 1;
    __threadfence();
    flag[lane] = 32 - lane;
}

// Every block waits for what the one before it left.
extern "C" __global__ void flags_between_blocks(const int *in, volatile int *prefix, volatile int *ready, int *out)
{
    __shared__ int before;
    if (threadIdx.x == 0) {
        before = 0;
        if (blockIdx.x) {
            while (ready[blockIdx.x - 1] == 0) {}
            __threadfence();
            before = prefix[blockIdx.x - 1];
        }
        prefix[blockIdx.x] = before + in[blockIdx.x];
        __threadfence();
        ready[blockIdx.x] = 1;
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = before;
}

// Half of the warps wait at one barrier and half at another: nobody goes on.
extern "C" __global__ void deadlock(int *out)
{
    if (threadIdx.x < 32) BARRIER("barrier.sync 1, 64;");
    else BARRIER("barrier.sync 2, 64;");
    out[threadIdx.x] = 1;
}

// Half of a warp waits for lane 16, which waits at a barrier for a second warp; there is none.
extern "C" __global__ void deadlock_of_lanes(int *out)
{
    if (threadIdx.x < 16) __syncwarp(0x0001ffff);
    else BARRIER("barrier.sync 1, 64;");
    out[threadIdx.x] = 1;
}

// The lanes of a warp meet although they are in different arms; then each half meets by itself.
extern "C" __global__ void syncwarp_in_both_arms(int *out)
{
    __shared__ volatile int shared[64], second[64];
    int t = threadIdx.x, warp = t & ~31, value;
    shared[t] = t + 1;
    if (t & 1) {
        __syncwarp();
        value = shared[warp + (t + 1) % 32];
        second[t] = value;
        __syncwarp(0xaaaaaaaa);
        value += second[warp + (t + 2) % 32];
    } else {
        __syncwarp();
        value = -shared[warp + (t + 1) % 32];
    }
    out[t] = value;
}

// Shuffles after, and within, a loop that lanes leave at different times.
extern "C" __global__ void shuffle_after_a_loop(const int *turns, int *out, int *inside)
{
    int t = threadIdx.x, x = t + 1, sum = 0;
    unsigned rest = 0xffffffff;
#pragma unroll 1
    for (int k = 0; k < turns[t]; k++) {
        rest = __ballot_sync(rest, 1) & rest;
        x = x * 3 + k;
        unsigned going = __ballot_sync(rest, k + 1 < turns[t]);
        sum += __popc(going);
        rest = going;
    }
    out[t] = __shfl_sync(0xffffffff, x, t ^ 5) + __reduce_add_sync(0xffffffff, sum & 1);
    inside[t] = sum;
}

// One shuffle of all lanes, written in both arms of a branch.
extern "C" __global__ void shuffle_in_both_arms(int *out)
{
    int t = threadIdx.x, got;
    if (t % 3 == 0) got = __shfl_xor_sync(0xffffffff, t * 10, 1) + 1;
    else got = __shfl_xor_sync(0xffffffff, t * 100, 1) + 2;
    out[t] = got;
}
