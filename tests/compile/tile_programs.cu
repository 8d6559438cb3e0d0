// Programs of CUDA Tile C++: products, softmax, layer norm and attention, over whole arrays of any size.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_tf32.h>
#include <cuda_tile.h>

namespace ct = cuda::tiles;
using Matrix = ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>;
using Stack = ct::extents<int, ct::dynamic_extent, ct::dynamic_extent, ct::dynamic_extent>;

// One tile of the result a block, or tile after tile by as many blocks as there are. The factors have the type Factor.
template <typename T, typename Factor = T>
__tile_global__ void product(T* a, T* b, float* c, int rows, int columns, int inner) {
    ct::tensor_span left{a, Matrix{rows, inner}}, right{b, Matrix{inner, columns}};
    ct::tensor_span result{c, Matrix{rows, columns}};
    ct::partition_view lefts{left, ct::shape<32, 32>{}}, rights{right, ct::shape<32, 32>{}};
    ct::partition_view results{result, ct::shape<32, 32>{}};
    const int across = (columns + 31) / 32, tiles = (rows + 31) / 32 * across;
    for (int tile = ct::bid().x; tile < tiles; tile += ct::num_blocks().x) {
        auto total = ct::zeros<ct::tile<float, ct::shape<32, 32>>>();
        for (int step = 0; step < (inner + 31) / 32; ++step) {
            const auto l = ct::element_cast<Factor>(lefts.load_masked(tile / across, step));
            const auto r = ct::element_cast<Factor>(rights.load_masked(step, tile % across));
            total = ct::mma(l, r, total);
        }
        results.store_masked(total, tile / across, tile % across);
    }
}

__tile_global__ void product_batched(__half* a, __half* b, float* c, int batches, int rows, int columns, int inner) {
    ct::tensor_span left{a, Stack{batches, rows, inner}}, right{b, Stack{batches, inner, columns}};
    ct::tensor_span result{c, Stack{batches, rows, columns}};
    ct::partition_view lefts{left, ct::shape<1, 32, 32>{}}, rights{right, ct::shape<1, 32, 32>{}};
    ct::partition_view results{result, ct::shape<1, 32, 32>{}};
    auto total = ct::zeros<ct::tile<float, ct::shape<1, 32, 32>>>();
    const auto at = ct::bid();
    for (int step = 0; step < (inner + 31) / 32; ++step)
        total = ct::mma(lefts.load_masked(at.z, at.x, step), rights.load_masked(at.z, step, at.y), total);
    results.store_masked(total, at.z, at.x, at.y);
}

__tile_global__ void softmax(float* x, float* y, int rows, int columns) {
    ct::tensor_span given{x, Matrix{rows, columns}}, result{y, Matrix{rows, columns}};
    ct::partition_view from{given, ct::shape<1, 128>{}}, to{result, ct::shape<1, 128>{}};
    ct::view_padding_constant<ct::view_padding::negative_inf> lowest;
    const auto values = from.load_masked(lowest, ct::bid().x, 0);
    const auto weights = ct::exp(values - ct::reduce_max<1>(values));
    to.store_masked(weights / ct::sum<1>(weights), ct::bid().x, 0);
}

// Rows of exactly 128 elements.
__tile_global__ void layer_norm(float* x, float* weight, float* bias, float* y, int rows, float epsilon) {
    ct::tensor_span given{x, Matrix{rows, 128}}, result{y, Matrix{rows, 128}};
    ct::tensor_span scales{weight, Matrix{1, 128}}, shifts{bias, Matrix{1, 128}};
    ct::partition_view from{given, ct::shape<1, 128>{}}, to{result, ct::shape<1, 128>{}};
    ct::partition_view scale{scales, ct::shape<1, 128>{}}, shift{shifts, ct::shape<1, 128>{}};
    const auto values = from.load_masked(ct::bid().x, 0);
    const auto centered = values - ct::sum<1>(values) / 128.0f;
    const auto variance = ct::sum<1>(centered * centered) / 128.0f;
    const auto normalized = centered * ct::rsqrt(variance + epsilon);
    to.store_masked(normalized * scale.load_masked(0, 0) + shift.load_masked(0, 0), ct::bid().x, 0);
}

// The softmax over all keys in one pass; a block for 32 queries of a head, whose vectors have 32 elements.
__tile_global__ void attention(__half* q, __half* k, __half* v, float* out, int heads, int length, float scale) {
    using Scores = ct::tile<float, ct::shape<32, 32>>;
    using Column = ct::tile<float, ct::shape<32, 1>>;
    ct::tensor_span queries{q, Matrix{heads * length, 32}}, keys{k, Matrix{heads * length, 32}};
    ct::tensor_span values{v, Matrix{heads * length, 32}};
    ct::tensor_span result{out, Matrix{heads * length, 32}};
    ct::partition_view query{queries, ct::shape<32, 32>{}}, key{keys, ct::shape<32, 32>{}};
    ct::partition_view value{values, ct::shape<32, 32>{}};
    ct::partition_view to{result, ct::shape<32, 32>{}};
    const int steps = length / 32, first = ct::bid().y * steps;
    const auto mine = query.load_masked(first + ct::bid().x, 0);
    auto highest = ct::full<Column>(-1e30f), sums = ct::zeros<Column>();
    auto total = ct::zeros<Scores>();
    for (int step = first; step < first + steps; ++step) {
        const auto scores = ct::mma(mine, ct::transpose(key.load_masked(step, 0)), ct::zeros<Scores>()) * scale;
        const auto higher = ct::max(highest, ct::reduce_max<1>(scores));
        const auto weights = ct::exp(scores - higher);
        const auto shrink = ct::exp(highest - higher);
        sums = sums * shrink + ct::sum<1>(weights);
        total = ct::mma(ct::element_cast<__half>(weights), value.load_masked(step, 0), total * shrink);
        highest = higher;
    }
    to.store_masked(total / sums, first + ct::bid().x, 0);
}
