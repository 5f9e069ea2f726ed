/* Layers of small networks on CPU, float32, channels last: depthwise convolution with TensorFlow's "same" padding,
   and batch norm with fixed statistics followed by a clamp to [0, 6]. See _fast_layers.py for the caller. Channels are
   taken eight at a time, in fours where there are enough, so their number is a multiple of eight. A sum has one order whatever the number of
   threads: pictures share nothing but the sums over them, and these are added picture by picture. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, FOUR = 4 * LANES, LARGEST_KERNEL = 16 };
typedef float F __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
#define INLINE static inline __attribute__((always_inline))

typedef struct { int64_t pictures, height, width, channels, out_height, out_width, kernel, stride, top, left; } Shape;

INLINE F load(const float *from) { F value; memcpy(&value, from, sizeof value); return value; }
INLINE void store(float *to, F value) { memcpy(to, &value, sizeof value); }
#define VECTORS _Pragma("GCC unroll 4") for (int v = 0; v < count; v++)

/* The taps of a kernel that fall inside at one output position: first and one past the last. */
INLINE void inside(int64_t at, int64_t stride, int64_t before, int64_t kernel, int64_t size, int64_t *first, int64_t *end) {
    int64_t start = at * stride - before;
    *first = start < 0 ? -start : 0;
    *end = size - start < kernel ? size - start : kernel;
}

INLINE void output_at(const Shape *s, const float *x, const float *weight, float *y, int64_t i0, int64_t i1, int64_t j0, int64_t j1, int count) {
    F sum[4] = {0};
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = j0; j < j1; j++) {
            const float *from = x + (i * s->width + j) * s->channels, *by = weight + (i * s->kernel + j) * s->channels;
            VECTORS sum[v] += load(from + v * LANES) * load(by + v * LANES);
        }
    VECTORS store(y + v * LANES, sum[v]);
}

/* weight: [kernel * kernel, channels] */
void genie_depthwise(const Shape *shape, const float *x, const float *weight, float *y, int32_t threads) {
    const Shape s = *shape;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < s.pictures; n++)
        for (int64_t oh = 0; oh < s.out_height; oh++)
            for (int64_t ow = 0; ow < s.out_width; ow++) {
                int64_t i0, i1, j0, j1;
                inside(oh, s.stride, s.top, s.kernel, s.height, &i0, &i1);
                inside(ow, s.stride, s.left, s.kernel, s.width, &j0, &j1);
                const float *from = x + ((n * s.height + oh * s.stride - s.top) * s.width + ow * s.stride - s.left) * s.channels;
                float *to = y + ((n * s.out_height + oh) * s.out_width + ow) * s.channels;
                int64_t c = 0;
                for (; c + FOUR <= s.channels; c += FOUR) output_at(&s, from + c, weight + c, to + c, i0, i1, j0, j1, 4);
                for (; c < s.channels; c += LANES) output_at(&s, from + c, weight + c, to + c, i0, i1, j0, j1, 1);
            }
}

typedef struct { int count; int64_t tap[LARGEST_KERNEL], place[LARGEST_KERNEL]; } Taps;

/* For every input position the taps that reach it, and the output positions they come from. */
static Taps *reaching(int64_t positions, int64_t stride, int64_t before, int64_t kernel, int64_t size) {
    Taps *all = malloc(positions * sizeof(Taps));
    if (!all) abort(); /* a few kilobytes */
    for (int64_t at = 0; at < positions; at++) {
        Taps *taps = all + at;
        taps->count = 0;
        for (int64_t i = 0; i < kernel; i++) {
            int64_t from = at + before - i;
            if (from >= 0 && from % stride == 0 && from / stride < size) {
                taps->tap[taps->count] = i;
                taps->place[taps->count++] = from / stride;
            }
        }
    }
    return all;
}

INLINE void input_at(const Shape *s, const float *g, const float *weight, float *gx, const Taps *rows, const Taps *columns, int count) {
    F sum[4] = {0};
    for (int a = 0; a < rows->count; a++)
        for (int b = 0; b < columns->count; b++) {
            const float *from = g + (rows->place[a] * s->out_width + columns->place[b]) * s->channels;
            const float *by = weight + (rows->tap[a] * s->kernel + columns->tap[b]) * s->channels;
            VECTORS sum[v] += load(from + v * LANES) * load(by + v * LANES);
        }
    VECTORS store(gx + v * LANES, sum[v]);
}

static void input_gradient(const Shape *shape, const float *weight, const float *g, float *gx, int32_t threads) {
    const Shape s = *shape;
    Taps *rows = reaching(s.height, s.stride, s.top, s.kernel, s.out_height);
    Taps *columns = reaching(s.width, s.stride, s.left, s.kernel, s.out_width);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < s.pictures; n++)
        for (int64_t ih = 0; ih < s.height; ih++)
            for (int64_t iw = 0; iw < s.width; iw++) {
                const float *from = g + n * s.out_height * s.out_width * s.channels;
                float *to = gx + ((n * s.height + ih) * s.width + iw) * s.channels;
                int64_t c = 0;
                for (; c + FOUR <= s.channels; c += FOUR) input_at(&s, from + c, weight + c, to + c, rows + ih, columns + iw, 4);
                for (; c < s.channels; c += LANES) input_at(&s, from + c, weight + c, to + c, rows + ih, columns + iw, 1);
            }
    free(rows);
    free(columns);
}

/* The output positions at which a tap falls inside: first and one past the last. */
INLINE void positions(int64_t tap, int64_t stride, int64_t before, int64_t size, int64_t out, int64_t *first, int64_t *end) {
    int64_t shift = tap - before, last = size - 1 - shift;
    *first = shift < 0 ? (-shift + stride - 1) / stride : 0;
    *end = last < 0 ? 0 : last / stride + 1 < out ? last / stride + 1 : out;
}

INLINE void weights_of(const Shape *s, const float *x, const float *g, float *gw, int count) {
    F sums[LARGEST_KERNEL * LARGEST_KERNEL][4] = {0};
    for (int64_t n = 0; n < s->pictures; n++)
        for (int64_t i = 0; i < s->kernel; i++)
            for (int64_t j = 0; j < s->kernel; j++) {
                int64_t h0, h1, w0, w1;
                positions(i, s->stride, s->top, s->height, s->out_height, &h0, &h1);
                positions(j, s->stride, s->left, s->width, s->out_width, &w0, &w1);
                F sum[4] = {0};
                for (int64_t oh = h0; oh < h1; oh++) {
                    const float *from = x + ((n * s->height + oh * s->stride + i - s->top) * s->width + j - s->left) * s->channels;
                    const float *grad = g + (n * s->out_height + oh) * s->out_width * s->channels;
                    for (int64_t ow = w0; ow < w1; ow++)
                        VECTORS sum[v] += load(from + ow * s->stride * s->channels + v * LANES) * load(grad + ow * s->channels + v * LANES);
                }
                VECTORS sums[i * s->kernel + j][v] += sum[v];
            }
    for (int64_t t = 0; t < s->kernel * s->kernel; t++) VECTORS store(gw + t * s->channels + v * LANES, sums[t][v]);
}

static void weight_gradient(const Shape *shape, const float *x, const float *g, float *gw, int32_t threads) {
    const Shape s = *shape;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < s.channels; c += FOUR)
        if (c + FOUR <= s.channels)
            weights_of(&s, x + c, g + c, gw + c, 4);
        else
            for (int64_t d = c; d < s.channels; d += LANES) weights_of(&s, x + d, g + d, gw + d, 1);
}

/* gx or gw may be null where it is not asked for */
void genie_depthwise_backward(const Shape *shape, const float *x, const float *weight, const float *g, float *gx, float *gw, int32_t threads) {
    if (gx) input_gradient(shape, weight, g, gx, threads);
    if (gw) weight_gradient(shape, x, g, gw, threads);
}

INLINE F where(I mask, F yes, F no) { return (F)(((I)yes & mask) | ((I)no & ~mask)); }

INLINE F clamped(F z) { /* a NaN stays */
    F zero = {0}, six = zero + 6.0f;
    z = where(z < zero, zero, z);
    return where(z > six, six, z);
}

/* y = clamp(x * scale + shift, 0, 6), without the clamp if not bounded; x: [pictures, positions, channels] */
void genie_norm(int64_t pictures, int64_t at, int64_t channels, const float *x, const float *scale, const float *shift, float *y, int32_t bounded, int32_t threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < pictures * at; row++)
        for (int64_t c = 0; c < channels; c += LANES) {
            F z = load(x + row * channels + c) * load(scale + c) + load(shift + c);
            store(y + row * channels + c, bounded ? clamped(z) : z);
        }
}

/* gx = g * scale where the clamp let it through; sums[picture]: of that g, and of g * (x - mean) */
void genie_norm_backward(int64_t pictures, int64_t at, int64_t channels, const float *x, const float *scale, const float *shift, const float *mean, const float *g, float *gx, float *sums, int32_t bounded, int32_t threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < pictures; n++) {
        float *plain = sums + 2 * n * channels, *centred = plain + channels;
        memset(plain, 0, 2 * channels * sizeof(float));
        for (int64_t row = n * at; row < (n + 1) * at; row++)
            for (int64_t c = 0; c < channels; c += LANES) {
                F value = load(x + row * channels + c), a = load(scale + c), grad = load(g + row * channels + c), zero = {0}, six = zero + 6.0f;
                if (bounded) {
                    F z = value * a + load(shift + c);
                    grad = where((z <= zero) | (z >= six), zero, grad);
                }
                store(gx + row * channels + c, grad * a);
                store(plain + c, load(plain + c) + grad);
                store(centred + c, load(centred + c) + grad * (value - load(mean + c)));
            }
    }
}
