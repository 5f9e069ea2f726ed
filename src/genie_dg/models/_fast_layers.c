/* The middle of an inverted residual block, y = clamp(depthwise(clamp(x + shift)) + bias), forward and backward.
 *
 * The clamp is that to [0, 6] (ReLU6). Arrays are float32, channels last: [picture, row, column, channel], the
 * channels a multiple of 8. Up to 32 channels of a few pictures are worked on at a time, in buffers that stay in
 * the cache: what lies between x and y is never an array of its own. The few pictures are a group; their number
 * follows from their size alone. Sums over groups are left to the caller, so that results do not depend on the
 * number of threads. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, MOST = 4, LARGEST_KERNEL = 16 };
typedef float F __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
#define INLINE static inline __attribute__((always_inline))

typedef struct { int64_t pictures, height, width, channels, out_height, out_width, kernel, stride, top, left; } Shape;

INLINE F load(const float *from) { F value; memcpy(&value, from, sizeof value); return value; }
INLINE void store(float *to, F value) { memcpy(to, &value, sizeof value); }
INLINE F where(I mask, F yes, F no) { return (F)(((I)yes & mask) | ((I)no & ~mask)); }

INLINE F clamped(F z) { /* a NaN stays */
    F zero = {0}, six = zero + 6.0f;
    z = where(z < zero, zero, z);
    return where(z > six, six, z);
}

INLINE F through(F y, F g) { /* g where the clamp that gave y let it through */
    F zero = {0}, six = zero + 6.0f;
    return where((y <= zero) | (y >= six), zero, g);
}

#define VECTORS _Pragma("GCC unroll 4") for (int v = 0; v < count; v++)

/* Rows and columns of the padded input. */
INLINE int64_t padded(int64_t out, int64_t size, int64_t stride, int64_t kernel, int64_t before) {
    int64_t reach = (out - 1) * stride + kernel;
    return reach > size + before ? reach : size + before;
}

/* What one thread works with. pads: the clamped inputs of a group with zeros around them; flows: the gradients at
 * their outputs, with zeros around them where the stride is 1. Both have count * LANES channels; pad and flow are
 * those of one picture, and pad_size and flow_size how many positions each has. */
typedef struct { float *pads, *flows, *pad, *flow; int64_t group, columns, border, flow_columns, pad_size, flow_size; int count; } Buffers;
enum { CACHED = 160 * 1024, LARGEST_GROUP = 16 };

static Buffers sizes_of(const Shape *s) {
    Buffers b = {0};
    b.columns = padded(s->out_width, s->width, s->stride, s->kernel, s->left);
    b.border = s->stride == 1 ? s->kernel - 1 : 0;
    b.flow_columns = s->out_width + 2 * b.border;
    b.pad_size = padded(s->out_height, s->height, s->stride, s->kernel, s->top) * b.columns;
    b.flow_size = (s->out_height + 2 * b.border) * b.flow_columns;
    b.group = CACHED / ((b.pad_size + b.flow_size) * MOST * LANES * (int64_t)sizeof(float));
    b.group = b.group < 1 ? 1 : b.group > LARGEST_GROUP ? LARGEST_GROUP : b.group;
    return b;
}

int64_t genie_group(const Shape *s) { return sizes_of(s).group; }

static Buffers buffers_for(const Shape *s) {
    Buffers b = sizes_of(s);
    b.pads = aligned_alloc(64, b.group * (b.pad_size + b.flow_size) * MOST * LANES * sizeof(float));
    if (!b.pads) abort();
    b.flows = b.pads + b.group * b.pad_size * MOST * LANES;
    return b;
}

/* Zeros everywhere, if the buffers were last used for another number of channels. */
static void prepare(Buffers *b, int count) {
    if (b->count == count) return;
    memset(b->pads, 0, b->group * (b->pad_size + b->flow_size) * MOST * LANES * sizeof(float));
    b->count = count;
}

/* The buffers of one picture of the group. */
INLINE Buffers of_picture(const Buffers *b, int64_t n, int count) {
    Buffers one = *b;
    one.pad = b->pads + n * b->pad_size * count * LANES;
    one.flow = b->flows + n * b->flow_size * count * LANES;
    return one;
}

INLINE void fill(const Shape *s, const Buffers *b, const float *x, const float *shift, int count) {
    F by[MOST];
    VECTORS by[v] = load(shift + v * LANES);
    for (int64_t h = 0; h < s->height; h++) {
        float *to = b->pad + ((h + s->top) * b->columns + s->left) * count * LANES;
        const float *from = x + h * s->width * s->channels;
        for (int64_t w = 0; w < s->width; w++)
            VECTORS store(to + (w * count + v) * LANES, clamped(load(from + w * s->channels + v * LANES) + by[v]));
    }
}

/* sums[pixel] += the taps of `pixels` neighbours, from the corner at `from`; weight: [kernel * kernel, channels]. */
INLINE void taps(F sums[][MOST], const float *from, int64_t columns, int64_t stride, const float *weight, int64_t channels, int64_t kernel, int flip, int pixels, int count) {
    for (int64_t i = 0; i < kernel; i++)
        for (int64_t j = 0; j < kernel; j++) {
            int64_t tap = i * kernel + j;
            const float *by = weight + (flip ? kernel * kernel - 1 - tap : tap) * channels, *at = from + (i * columns + j) * count * LANES;
            VECTORS {
                F factor = load(by + v * LANES);
                for (int p = 0; p < pixels; p++) sums[p][v] += load(at + (p * stride * count + v) * LANES) * factor;
            }
        }
}

INLINE void outputs(const Shape *s, const Buffers *b, const float *weight, const float *bias, float *y, int64_t oh, int64_t ow, int64_t kernel, int pixels, int count) {
    F sums[2][MOST];
    for (int p = 0; p < pixels; p++) VECTORS sums[p][v] = load(bias + v * LANES);
    taps(sums, b->pad + (oh * s->stride * b->columns + ow * s->stride) * count * LANES, b->columns, s->stride, weight, s->channels, kernel, 0, pixels, count);
    float *to = y + (oh * s->out_width + ow) * s->channels;
    for (int p = 0; p < pixels; p++) VECTORS store(to + p * s->channels + v * LANES, clamped(sums[p][v]));
}

INLINE void forward_block(const Shape *s, Buffers *all, const float *x, const float *shift, const float *weight, const float *bias, float *y, int64_t kernel, int count) {
    prepare(all, count);
    Buffers one = of_picture(all, 0, count), *b = &one;
    fill(s, b, x, shift, count);
    for (int64_t oh = 0; oh < s->out_height; oh++) {
        int64_t ow = 0;
        for (; ow + 2 <= s->out_width; ow += 2) outputs(s, b, weight, bias, y, oh, ow, kernel, 2, count);
        if (ow < s->out_width) outputs(s, b, weight, bias, y, oh, ow, kernel, 1, count);
    }
}

/* One call for each number of vectors and the kernels that networks have, so that loops over them are unrolled. */
#define BY_KERNEL(call, vectors) \
    do { \
        if (s.kernel == 3) call(3, vectors); \
        else if (s.kernel == 5) call(5, vectors); \
        else call(s.kernel, vectors); \
    } while (0)
#define BY_CHANNELS(call) \
    for (int64_t c = 0; c < s.channels;) { \
        int64_t left = (s.channels - c) / LANES; \
        if (left >= 4) { BY_KERNEL(call, 4); c += 4 * LANES; } \
        else if (left >= 2) { BY_KERNEL(call, 2); c += 2 * LANES; } \
        else { BY_KERNEL(call, 1); c += LANES; } \
    }

/* weight: [kernel * kernel, channels]; shift, bias: [channels] */
void genie_depthwise(const Shape *shape, const float *x, const float *shift, const float *weight, const float *bias, float *y, int32_t threads) {
    const Shape s = *shape;
#pragma omp parallel num_threads(threads)
    {
        Buffers b = buffers_for(&s);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < s.pictures; n++) {
            const float *from = x + n * s.height * s.width * s.channels;
            float *to = y + n * s.out_height * s.out_width * s.channels;
#define FORWARD(taps, vectors) forward_block(&s, &b, from + c, shift + c, weight + c, bias + c, to + c, taps, vectors)
            BY_CHANNELS(FORWARD)
        }
        free(b.pads);
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

/* The gradient before the clamp of the output into b->flow, added up in sums. */
INLINE void flow_from(const Shape *s, const Buffers *b, const float *y, const float *g, F sums[], int count) {
    for (int64_t oh = 0; oh < s->out_height; oh++) {
        float *to = b->flow + ((oh + b->border) * b->flow_columns + b->border) * count * LANES;
        for (int64_t ow = 0; ow < s->out_width; ow++) {
            int64_t at = (oh * s->out_width + ow) * s->channels;
            VECTORS {
                F flow = through(load(y + at + v * LANES), load(g + at + v * LANES));
                store(to + (ow * count + v) * LANES, flow);
                sums[v] += flow;
            }
        }
    }
}

/* Row i of the gradient of the kernel over `pictures`, for `count` of the `stored` vectors in the buffers, from `first`. */
INLINE void weight_row(const Shape *s, const Buffers *b, float *gw, int64_t pictures, int64_t i, int64_t kernel, int first, int stored, int count) {
    F sums[LARGEST_KERNEL][2] = {0};
    for (int64_t n = 0; n < pictures; n++) {
        Buffers one = of_picture(b, n, stored);
        for (int64_t oh = 0; oh < s->out_height; oh++) {
            const float *grad = one.flow + (((oh + b->border) * b->flow_columns + b->border) * stored + first) * LANES;
            const float *from = one.pad + ((oh * s->stride + i) * b->columns * stored + first) * LANES;
            for (int64_t ow = 0; ow < s->out_width; ow++) {
                F by[2];
                VECTORS by[v] = load(grad + (ow * stored + v) * LANES);
                for (int64_t j = 0; j < kernel; j++) VECTORS sums[j][v] += load(from + ((ow * s->stride + j) * stored + v) * LANES) * by[v];
            }
        }
    }
    for (int64_t j = 0; j < kernel; j++) VECTORS store(gw + (i * kernel + j) * s->channels + (first + v) * LANES, sums[j][v]);
}

INLINE void weights_of(const Shape *s, const Buffers *b, float *gw, int64_t pictures, int64_t kernel, int count) {
    for (int64_t i = 0; i < kernel; i++)
        if (count == 1)
            weight_row(s, b, gw, pictures, i, kernel, 0, count, 1);
        else
            for (int first = 0; first < count; first += 2) weight_row(s, b, gw, pictures, i, kernel, first, count, 2);
}

/* The gradient at the input, past its clamp, added up in total. */
INLINE void finish_input(const Shape *s, const Buffers *b, float *gx, F total[], F sums[][MOST], int64_t ih, int64_t iw, int pixels, int count) {
    const float *y = b->pad + ((ih + s->top) * b->columns + iw + s->left) * count * LANES;
    float *to = gx + (ih * s->width + iw) * s->channels;
    for (int p = 0; p < pixels; p++)
        VECTORS {
            F grad = through(load(y + (p * count + v) * LANES), sums[p][v]);
            store(to + p * s->channels + v * LANES, grad);
            total[v] += grad;
        }
}

/* With stride 1: a convolution of the padded flow with the kernel turned around. */
INLINE void even_inputs(const Shape *s, const Buffers *b, const float *weight, float *gx, F total[], int64_t ih, int64_t iw, int64_t kernel, int pixels, int count) {
    F sums[2][MOST] = {0};
    taps(sums, b->flow + ((ih + s->top) * b->flow_columns + iw + s->left) * count * LANES, b->flow_columns, 1, weight, s->channels, kernel, 1, pixels, count);
    finish_input(s, b, gx, total, sums, ih, iw, pixels, count);
}

INLINE void strided_input(const Shape *s, const Buffers *b, const float *weight, float *gx, F total[], const Taps *rows, const Taps *columns, int64_t ih, int64_t iw, int count) {
    F sums[1][MOST] = {0};
    for (int a = 0; a < rows->count; a++)
        for (int c = 0; c < columns->count; c++) {
            const float *from = b->flow + (rows->place[a] * b->flow_columns + columns->place[c]) * count * LANES;
            const float *by = weight + (rows->tap[a] * s->kernel + columns->tap[c]) * s->channels;
            VECTORS sums[0][v] += load(from + v * LANES) * load(by + v * LANES);
        }
    finish_input(s, b, gx, total, sums, ih, iw, 1, count);
}

INLINE void inputs_of(const Shape *s, const Buffers *b, const float *weight, float *gx, F total[], const Taps *rows, const Taps *columns, int64_t kernel, int count) {
    for (int64_t ih = 0; ih < s->height; ih++) {
        int64_t iw = 0;
        if (s->stride == 1) {
            for (; iw + 2 <= s->width; iw += 2) even_inputs(s, b, weight, gx, total, ih, iw, kernel, 2, count);
            if (iw < s->width) even_inputs(s, b, weight, gx, total, ih, iw, kernel, 1, count);
        } else
            for (; iw < s->width; iw++) strided_input(s, b, weight, gx, total, rows + ih, columns + iw, ih, iw, count);
    }
}

/* What the gradients of one group are read from and written to, at its first picture and channel. */
typedef struct { const float *x, *shift, *weight, *y, *g; float *gx, *gshift, *gw, *gb; const Taps *rows, *columns; int64_t pictures; } Group;

INLINE void backward_block(const Shape *s, Buffers *all, const Group *at, int64_t c, int64_t kernel, int count) {
    int64_t in = s->height * s->width * s->channels, out = s->out_height * s->out_width * s->channels;
    F after[MOST] = {0}, before[MOST] = {0};
    prepare(all, count);
    for (int64_t n = 0; n < at->pictures; n++) {
        Buffers one = of_picture(all, n, count);
        fill(s, &one, at->x + n * in + c, at->shift + c, count);
        flow_from(s, &one, at->y + n * out + c, at->g + n * out + c, after, count);
    }
    weights_of(s, all, at->gw + c, at->pictures, kernel, count);
    for (int64_t n = 0; n < at->pictures; n++) {
        Buffers one = of_picture(all, n, count);
        inputs_of(s, &one, at->weight + c, at->gx + n * in + c, before, at->rows, at->columns, kernel, count);
    }
    VECTORS store(at->gb + c + v * LANES, after[v]);
    VECTORS store(at->gshift + c + v * LANES, before[v]);
}

/* gw: [group, kernel * kernel, channels], gshift and gb: [group, channels], to be summed over groups */
void genie_depthwise_backward(const Shape *shape, const float *x, const float *shift, const float *weight, const float *y, const float *g, float *gx, float *gshift, float *gw, float *gb, int32_t threads) {
    const Shape s = *shape;
    Taps *rows = reaching(s.height, s.stride, s.top, s.kernel, s.out_height);
    Taps *columns = reaching(s.width, s.stride, s.left, s.kernel, s.out_width);
    int64_t group = sizes_of(&s).group, groups = (s.pictures + group - 1) / group;
#pragma omp parallel num_threads(threads)
    {
        Buffers b = buffers_for(&s);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < groups; k++) {
            int64_t n = k * group, in = n * s.height * s.width * s.channels, out = n * s.out_height * s.out_width * s.channels;
            Group at = {x + in, shift, weight, y + out, g + out, gx + in, gshift + k * s.channels, gw + k * s.kernel * s.kernel * s.channels, gb + k * s.channels, rows, columns, s.pictures - n < group ? s.pictures - n : group};
#define BACKWARD(taps, vectors) backward_block(&s, &b, &at, c, taps, vectors)
            BY_CHANNELS(BACKWARD)
        }
        free(b.pads);
    }
    free(rows);
    free(columns);
}
