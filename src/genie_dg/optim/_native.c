/* One GENIE step of many float32 tensors on CPU: see _native.py for the caller, _update.py for the rule that this
   file is held to and _random.py for the random numbers. Everything is IEEE arithmetic in vectors of eight, so a
   result depends neither on the instruction set nor on the number of threads. Names follow _update.py: an entry is
   calm when s2 <= 0.1; its gate is exactly 1 and it gets no noise. A block with an entry that is not calm (NaN and
   overflow included) is done again with care, and when kappa is needed only after the whole tensor was summed. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float F __attribute__((vector_size(32)));
typedef int32_t I __attribute__((vector_size(32)));
typedef uint32_t U __attribute__((vector_size(32)));

enum { WIDTH = 8, BLOCK = 64, CHUNK = 65536, LANES = 256, BLOCKS = CHUNK / BLOCK, DIMENSIONS = 8 };
enum { MASK = 1, PRECONDITION = 2, NOISE = 4, ALGORITHM1 = 8, L2 = 16, MAXIMIZE = 32, SHRINK = 64 };
enum { FULL = PRECONDITION | NOISE }; /* what needs every part of the rule */
enum { AHEAD = 256 }; /* entries between what is worked on and what is fetched from memory */
enum { CACHED = 1 << 20 }; /* entries of a few tensors that fit in the last cache until kappa is known */
#define INLINE static inline __attribute__((always_inline))
#define VECTORS for (int i = 0; i < BLOCK; i += WIDTH)
#define UNROLLED _Pragma("GCC unroll 4")
#define ALIGNED __attribute__((aligned(32)))

static const uint32_t GOLDEN = 0x9E3779B9u, MULTIPLY_1 = 0x7FEB352Du, MULTIPLY_2 = 0x846CA68Bu;
static const float CALM = 0.1f, ROOT_2 = 1.41421356f, TINY = 1e-8f, ORDINARY = 1e28f, LARGEST = 3.40282347e+38f;

typedef struct {
    float beta, weight, correction, freedom, rho, least, size, shrink, l2, noise_std, doubled;
    int32_t step;
} Scalars;
typedef struct { int64_t tensor, start; double top, bottom; uint64_t live[BLOCKS / 64]; int64_t any_live; } Chunk;
typedef struct { /* layout: of p (and of its gradient if grad_like_p): dimensions, sizes, strides; else contiguous */
    float *p, *m, *v;
    const int64_t *layout;
    int64_t size, first_chunk;
    uint32_t base[2];
    int32_t scalars, grad_like_p;
    float kappa;
} Tensor;
typedef struct { float *restrict p, *restrict m, *restrict v; const float *restrict g; float kappa; uint32_t row; const uint32_t *lanes; } Block;

INLINE F load(const float *from) { F x; memcpy(&x, from, sizeof x); return x; }
INLINE U load_words(const uint32_t *from) { U x; memcpy(&x, from, sizeof x); return x; }
INLINE void store(float *to, F x) { memcpy(to, &x, sizeof x); }
INLINE void store_words(uint32_t *to, U x) { memcpy(to, &x, sizeof x); }
INLINE F all(float x) { return (F){x, x, x, x, x, x, x, x}; }
INLINE F where(I yes, F a, F b) { return (F)((yes & (I)a) | (~yes & (I)b)); }
INLINE F size_of(F x) { return (F)((I)x & 0x7FFFFFFF); }
INLINE float sum(F x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }
#ifdef __AVX__ /* what the lines below say, in one instruction: compilers do not see it */
INLINE F lesser(F a, F b) { return __builtin_ia32_minps256(a, b); }
INLINE F greater(F a, F b) { return __builtin_ia32_maxps256(a, b); }
INLINE int any(I x) { return __builtin_ia32_movmskps256((F)x) != 0; }
#else
INLINE F lesser(F a, F b) { return where(a < b, a, b); }
INLINE F greater(F a, F b) { return where(a > b, a, b); }
INLINE int any(I x) { int64_t w[4]; memcpy(w, &x, sizeof w); return (w[0] | w[1] | w[2] | w[3]) != 0; }
#endif
INLINE F at_most(F x, float limit) { return lesser(all(limit), x); } /* NaN stays NaN, and below */
INLINE F at_least(F x, float limit) { return greater(all(limit), x); }
INLINE F bounded(F x) { return at_least(at_most(x, LARGEST), -LARGEST); }

static uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * MULTIPLY_1;
    x = (x ^ (x >> 15)) * MULTIPLY_2;
    return x ^ (x >> 16);
}

INLINE uint32_t row_word(uint32_t row, uint32_t key0, uint32_t key1) {
    uint32_t x = row ^ key0;
    x = (x ^ (x >> 16)) * MULTIPLY_1 + key1;
    x = (x ^ (x >> 15)) * MULTIPLY_2;
    return x ^ (x >> 16);
}

INLINE U element_words(uint32_t row, U lane) {
    U x = (row ^ lane) * MULTIPLY_1;
    return (x ^ (x >> 15)) * MULTIPLY_2;
}

/* e = exp(min(2/s2, 20)) - 1 = 2^n (2^f - 1) + (2^n - 1), to 4e-7; the gate tanh(min(1/s2, 10)) is e / (e + 2) */
INLINE F power_of(F s2) {
    F y = 2.88539008f / at_least(s2, CALM), shifted = y + 12582912.0f, f = y - (shifted - 12582912.0f);
    F scale = (F)(((U)shifted << 23) + 0x3F800000u);
    F f2 = f * f, high = (0.055505004f + f * 0.0096662454f) + f2 * 0.0013333537f;
    return scale * (f * ((0.69314712f + f * 0.24022351f) + f2 * high)) + (scale - 1.0f);
}

/* log for 0 < x <= 1, to 3e-7 of the larger of 1 and its size */
INLINE F log_of(F x) {
    I exponent = ((I)x - 0x3F3504F3) >> 23; /* x / 2^exponent is in sqrt(1/2) ... sqrt(2) */
    F f = (F)((U)x - ((U)exponent << 23)) - 1.0f;
    F f2 = f * f, high = (0.20589332f - f * 0.18887664f) + f2 * 0.11858189f;
    F poly = (1.00000286f - f * 0.50001907f) + f2 * ((0.33304819f - f * 0.24883057f) + f2 * high);
    return __builtin_convertvector(exponent, F) * 0.69314718f + f * poly;
}

INLINE F uniform(U word) {
    U x = word + GOLDEN;
    x = (x ^ (x >> 16)) * MULTIPLY_1;
    x = (x ^ (x >> 15)) * MULTIPLY_2;
    return __builtin_convertvector((I)x >> 8, F) * 1.1920929e-7f + 5.9604645e-8f;
}

INLINE F centre_of(F w) {
    F c = w - 2.5f, c2 = c * c;
    F top = (c * 3.4372334312138264e-07f - 3.5288260278321104e-06f) + c2 * 2.8531987439350814e-08f;
    F high = (0.0002186020719818771f - c * 4.396740678203059e-06f) + c2 * top;
    F low = (c * 0.24664072692394257f + 1.5014094114303589f) - c2 * (c * 0.0012537076836451888f + 0.004177707713097334f);
    return low + c2 * c2 * high;
}

static __attribute__((noinline)) void replace_tails(float *y, const float *w) {
    static const float c[] = {-0.00013182344264350832f, 6.076043064240366e-05f, 0.0012532888213172555f,
                              -0.0036336760967969894f,  0.005784050095826387f,  -0.007632669061422348f,
                              0.009432020597159863f,    1.0016746520996094f,    2.832977056503296f};
    for (int i = 0; i < BLOCK; i++) {
        if (!(w[i] >= 5.0f)) continue;
        float x = sqrtf(w[i]) - 3.0f;
        y[i] = c[0];
        for (int k = 1; k < 9; k++) y[i] = y[i] * x + c[k];
    }
}

/* Words of a block, and normal numbers of variance 1/2 of them. Short loops, so that the processor can overlap entries. */
INLINE void draw(const Block b, uint32_t *words, float *xi) {
    float w[BLOCK] ALIGNED, x[BLOCK] ALIGNED;
    I tails = {0};
    VECTORS {
        U word = element_words(b.row, load_words(b.lanes + i));
        store_words(words + i, word);
        store(x + i, uniform(word));
    }
    VECTORS {
        F now = -log_of((1.0f - load(x + i)) * (1.0f + load(x + i)));
        store(w + i, now);
        store(xi + i, centre_of(now));
        tails |= now >= 5.0f;
    }
    if (any(tails)) replace_tails(xi, w);
    VECTORS store(xi + i, load(xi + i) * load(x + i));
}

/* One line of memory of each; past the end of a tensor nothing happens. */
INLINE void fetch_ahead(const Block b, int i) {
    __builtin_prefetch(b.g + i + AHEAD, 0);
    __builtin_prefetch(b.m + i + AHEAD, 1);
    __builtin_prefetch(b.v + i + AHEAD, 1);
    __builtin_prefetch(b.p + i + AHEAD, 1);
}

/* Moves the moments and, if every entry is calm, p as well. Returns whether it is; *top is then the sum of |step|. */
INLINE int advance(const int flags, const Block b, const Scalars *s, int32_t threshold, double *top, float *steps,
                   float *variances) {
    I calm = {-1, -1, -1, -1, -1, -1, -1, -1};
    F total = all(0.0f);
    UNROLLED VECTORS {
        if (i % 16 == 0) fetch_ahead(b, i);
        F g = load(b.g + i);
        if (flags & MAXIMIZE) g = -g;
        if (flags & L2) g = g + load(b.p + i) * s->l2;
        F m = load(b.m + i) * s->beta + g * s->weight, v = load(b.v + i) * s->beta + g * g * s->weight;
        store(b.m + i, m);
        store(b.v + i, v);
        F mean = m * s->correction, square = flags & ALGORITHM1 ? m * m : mean * mean;
        F second = flags & ALGORITHM1 ? v : v * s->correction, d = second - square;
        F s2 = lesser(d, second * s->doubled - (square + square));
        if (!(flags & ALGORITHM1)) s2 = s2 * s->freedom;
        if ((flags & FULL) == FULL && !(flags & ALGORITHM1)) store(variances + i, s2);
        calm &= size_of(s2) <= CALM;
        F signal = square + TINY, variance = at_least(s2, s->least);
        F part = mean * (flags & ALGORITHM1 ? square / at_least(v, TINY) : signal / (variance * s->rho + signal));
        if (flags & NOISE) total += size_of(part);
        store(steps + i, flags & PRECONDITION ? part : mean);
    }
    if (any(~calm)) return 0;
    UNROLLED VECTORS {
        F step = load(steps + i);
        if (flags & MASK) step = (F)((I)step & ~((I)element_words(b.row, load_words(b.lanes + i)) < threshold));
        F p = load(b.p + i);
        store(b.p + i, (flags & SHRINK ? p * s->shrink : p) - step * s->size);
    }
    *top = sum(total);
    return 1;
}

/* Mean, gate and trust of a block, safe against overflow, which ends in v as well; NaN where m is not finite. */
INLINE void direction(const int flags, const Block b, const Scalars *s, float *mean, float *gate, float *q) {
    VECTORS {
        F m = load(b.m + i), v = at_most(load(b.v + i), LARGEST), average = bounded(m * s->correction) + m * 0.0f;
        F x = flags & ALGORITHM1 ? m : average, second = flags & ALGORITHM1 ? v : v * s->correction;
        F square = x * x, d = second - square, twice = second * s->doubled - (square + square);
        d = where(size_of(d) <= LARGEST, d, all(LARGEST / 4)); /* what overflows counts as noise */
        F s2 = at_least(lesser(d, where(size_of(twice) <= LARGEST, twice, all(LARGEST / 2))), 0.0f);
        F signal = at_most(square, LARGEST / 4) + TINY;
        if (!(flags & ALGORITHM1)) s2 = at_least(at_most(s2 * s->freedom, LARGEST), s->least);
        F trust = flags & ALGORITHM1 ? at_most(square, LARGEST) / at_least(v, TINY) : signal / (signal + s2 * s->rho);
        store(b.v + i, v);
        store(mean + i, average);
        store(gate + i, s2);
        store(q + i, trust);
    }
    VECTORS {
        F e = power_of(load(gate + i));
        store(gate + i, e / (e + 2.0f));
    }
}

/* Sums the terms of kappa over n entries; those that are not finite do not count. */
INLINE void sums(const Block b, int64_t n, const Scalars *s, double *top, double *bottom) {
    float mean[BLOCK] ALIGNED, gate[BLOCK] ALIGNED, q[BLOCK] ALIGNED;
    direction(0, b, s, mean, gate, q);
    for (int64_t i = n; i < BLOCK; i++) gate[i] = 0.0f;
    F tops = all(0.0f), gates = all(0.0f);
    VECTORS {
        F average = load(mean + i), a = load(gate + i);
        F term = at_most(a * size_of(average) * load(q + i), LARGEST / 1099511627776.0f);
        tops += (F)((I)term & (term == term));
        gates += (F)((I)a & (average == average));
    }
    *top = sum(tops), *bottom = sum(gates);
}

/* The same of a full block from what `advance` found. False, and nothing found, after an overflow, which makes NaN of s2 or step. */
INLINE int sums_if_ordinary(const float *steps, const float *variances, double *top, double *bottom) {
    F tops = all(0.0f), gates = all(0.0f);
    VECTORS {
        F s2 = load(variances + i), e = power_of(s2), gate = e / (e + 2.0f);
        tops += gate * size_of(load(steps + i));
        gates += gate;
    }
    *top = sum(tops), *bottom = sum(gates);
    return *top <= LARGEST && *bottom <= LARGEST;
}

INLINE void finish(const int flags, const Block b, const Scalars *s, int32_t threshold) {
    float mean[BLOCK] ALIGNED, gate[BLOCK] ALIGNED, q[BLOCK] ALIGNED, xi[BLOCK] ALIGNED;
    uint32_t words[BLOCK] ALIGNED;
    const float scale = (flags & ALGORITHM1 ? s->noise_std : b.kappa) * ROOT_2;
    direction(flags, b, s, mean, gate, q);
    if (flags & (NOISE | MASK)) draw(b, words, xi);
    VECTORS {
        F step = load(mean + i), a = load(gate + i);
        if (flags & PRECONDITION) step = flags & ALGORITHM1 ? step * (load(q + i) * a) : step * load(q + i) * a;
        if (flags & NOISE) step += (1.0f - a) * scale * load(xi + i);
        if (flags & MASK) {
            I drop = (I)load_words(words + i) < threshold;
            step = bounded(step) * (F)(~drop & (I)all(1.0f)); /* NaN stays NaN */
        }
        F p = flags & SHRINK ? load(b.p + i) * s->shrink : load(b.p + i);
        store(b.p + i, bounded(p - step * s->size));
    }
}

/* `finish` of the released rule with all its parts, with one division less. False, and nothing done, if an entry is
   near overflow. */
INLINE int finish_if_ordinary(const int flags, const Block b, const Scalars *s, int32_t threshold) {
    float steps[BLOCK] ALIGNED, rest[BLOCK] ALIGNED, xi[BLOCK] ALIGNED;
    uint32_t words[BLOCK] ALIGNED;
    const float scale = 2.0f * b.kappa * ROOT_2;
    I ordinary = {-1, -1, -1, -1, -1, -1, -1, -1};
    VECTORS {
        F mean = load(b.m + i) * s->correction, square = mean * mean;
        F second = load(b.v + i) * s->correction, d = second - square;
        F s2 = lesser(d, second * s->doubled - (square + square)) * s->freedom;
        F signal = square + TINY, all_of_it = at_least(s2, s->least) * s->rho + signal; /* q = signal / it */
        ordinary &= all_of_it <= ORDINARY; /* false for NaN */
        F e = power_of(s2), inverse = 1.0f / ((e + 2.0f) * all_of_it);
        store(steps + i, mean * (signal * e * inverse));
        store(rest + i, (F)((I)(all_of_it * inverse) & (s2 > CALM))); /* half of 1 - gate = 2 / (e + 2) */
    }
    if (any(~ordinary)) return 0;
    draw(b, words, xi);
    VECTORS {
        F step = load(steps + i) + load(rest + i) * scale * load(xi + i);
        if (flags & MASK) step = (F)((I)step & ~((I)load_words(words + i) < threshold));
        F p = flags & SHRINK ? load(b.p + i) * s->shrink : load(b.p + i);
        store(b.p + i, p - step * s->size);
    }
    return 1;
}

/* Where n entries from the one at index at lie in memory. */
static void locate(const int64_t *layout, int64_t at, int64_t n, int64_t *offsets) {
    const int64_t last = layout[0] - 1, *sizes = layout + 1, *strides = sizes + layout[0];
    int64_t index[DIMENSIONS], base = 0;
    for (int64_t k = last; k >= 0; k--) {
        index[k] = at % sizes[k];
        at /= sizes[k];
        base += index[k] * strides[k];
    }
    for (int64_t i = 0; i < n;) {
        for (; i < n && index[last] < sizes[last]; index[last]++, base += strides[last]) offsets[i++] = base;
        for (int64_t k = last; k > 0 && index[k] == sizes[k]; k--) {
            base += strides[k - 1] - index[k] * strides[k];
            index[k] = 0;
            index[k - 1]++;
        }
    }
}

/* A block of n entries, filled up with zeros, which are calm. */
static void gather(float *to, const float *from, int64_t n, const int64_t *offsets) {
    for (int64_t i = n; i < BLOCK; i++) to[i] = 0.0f;
    if (offsets) for (int64_t i = 0; i < n; i++) to[i] = from[offsets[i]];
    else memcpy(to, from, n * sizeof(float));
}

/* The elements of a chunk: all blocks when the moments have to move, else those that were left for later. */
INLINE void chunk(const int flags, const int later, Chunk *c, const Tensor *t, const float *g, const Scalars *s,
                  int32_t threshold, const uint32_t *lanes) {
    uint32_t step = (uint32_t)s->step * GOLDEN, key0 = mix(t->base[0] + step), key1 = mix(t->base[1] + step);
    int64_t stop = t->size < c->start + CHUNK ? t->size : c->start + CHUNK;
    const int fast = (flags & FULL) == FULL && !(flags & ALGORITHM1);
    double top = 0, bottom = 0;
    if (!later) memset(c->live, 0, sizeof c->live), c->any_live = 0;
    for (int64_t at = c->start, k = 0; at < stop; at += BLOCK, k++) {
        uint64_t *live = c->live + k / 64, bit = (uint64_t)1 << k % 64;
        if (later && !(*live & bit)) continue;
        int64_t n = stop - at < BLOCK ? stop - at : BLOCK, offsets[BLOCK];
        Block b = {t->p + at, t->m + at, t->v + at, g + at, t->kappa, 0, lanes + at % LANES};
        b.row = row_word((uint32_t)(at / LANES), key0, key1);
        float copy[4][BLOCK];
        const int ends = n < BLOCK, copied = ends || t->layout; /* the last block of a tensor, or strides */
        if (t->layout) {
            locate(t->layout, at, n, offsets);
            gather(copy[0], t->p, n, offsets);
            if (!later && t->grad_like_p) gather(copy[3], g, n, offsets), b.g = copy[3];
            b.p = copy[0];
        }
        if (ends) {
            if (!t->layout) gather(copy[0], b.p, n, 0), b.p = copy[0];
            if (!later && b.g != copy[3]) gather(copy[3], b.g, n, 0), b.g = copy[3];
            gather(copy[1], b.m, n, 0);
            gather(copy[2], b.v, n, 0);
            b.m = copy[1], b.v = copy[2];
        }
        double part = 0, gates = n;
        float steps[BLOCK] ALIGNED, variances[BLOCK] ALIGNED;
        if (later) {
            if (!fast || b.kappa > ORDINARY || !finish_if_ordinary(flags, b, s, threshold)) finish(flags, b, s, threshold);
        } else if (!advance(flags, b, s, threshold, &part, steps, variances)) {
            if ((flags & NOISE) && !(flags & ALGORITHM1)) {
                if (!fast || ends || !sums_if_ordinary(steps, variances, &part, &gates)) sums(b, n, s, &part, &gates);
                *live |= bit;
                c->any_live = 1;
            } else {
                finish(flags, b, s, threshold);
            }
        }
        top += part;
        bottom += gates;
        if (!copied) continue;
        if (t->layout) for (int64_t i = 0; i < n; i++) t->p[offsets[i]] = copy[0][i];
        else memcpy(t->p + at, copy[0], n * sizeof(float));
        if (ends) memcpy(t->m + at, copy[1], n * sizeof(float)), memcpy(t->v + at, copy[2], n * sizeof(float));
    }
    if (!later) c->top = top, c->bottom = bottom;
}

static void run(int flags, int later, Chunk *c, const Tensor *t, const float *g, const Scalars *s, int32_t threshold,
                const uint32_t *lanes) {
    const int full = MASK | PRECONDITION | NOISE;
    if (later && flags == full) chunk(full, 1, c, t, g, s, threshold, lanes);
    else if (later) chunk(flags, 1, c, t, g, s, threshold, lanes);
    else if (flags == full) chunk(full, 0, c, t, g, s, threshold, lanes);
    else if (flags == PRECONDITION) chunk(PRECONDITION, 0, c, t, g, s, threshold, lanes);
    else chunk(flags, 0, c, t, g, s, threshold, lanes);
}

/* In order and in double: the same kappa for any number of threads. */
static void find_kappa(Tensor *t, const Chunk *chunks) {
    double top = 0, bottom = 0;
    for (int64_t k = 0; k * CHUNK < t->size; k++) {
        const Chunk *c = chunks + t->first_chunk + k;
        top += c->top, bottom += c->bottom;
    }
    t->kappa = bottom > 0 ? (float)(top / bottom) : 0.0f;
}

/* One step. The tensors, whose chunks follow one another, and the chunks are kept by the caller between steps.
   If the last step had live entries, a few tensors at a time are brought to their end, while they are cached. */
void genie_step(Tensor *tensors, int64_t count, Chunk *chunks, int64_t total, const float *const *grads,
                const Scalars *scalars, int32_t flags, int32_t threshold, int32_t threads) {
    uint32_t lanes[LANES];
    for (uint32_t i = 0; i < LANES; i++) lanes[i] = mix((i + 1) * GOLDEN);
    const int kappa = (flags & NOISE) && !(flags & ALGORITHM1);
    int64_t was_live = 0;
    for (int64_t i = 0; kappa && i < total; i++) was_live |= chunks[i].any_live;
    const int64_t most = was_live ? CACHED / CHUNK : total;
#pragma omp parallel num_threads(threads)
    for (int64_t first = 0, last, end; first < count; first = last) {
        const int64_t begin = tensors[first].first_chunk;
        for (last = first + 1; last < count && tensors[last].first_chunk - begin < most;) last++;
        end = last < count ? tensors[last].first_chunk : total;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = begin; i < end; i++) {
            const Tensor *t = tensors + chunks[i].tensor;
            run(flags, 0, chunks + i, t, grads[chunks[i].tensor], scalars + t->scalars, threshold, lanes);
        }
        if (!kappa) continue;
#pragma omp single
        for (int64_t i = first; i < last; i++) find_kappa(tensors + i, chunks);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = begin; i < end; i++) {
            const Tensor *t = tensors + chunks[i].tensor;
            if (chunks[i].any_live) run(flags, 1, chunks + i, t, t->p, scalars + t->scalars, threshold, lanes);
        }
    }
}

#ifdef __AVX__
INLINE F root(F x) { return __builtin_ia32_sqrtps256(x); }
#else
INLINE F root(F x) { for (int i = 0; i < WIDTH; i++) x[i] = sqrtf(x[i]); return x; }
#endif

/* The gradient of n <= CHUNK entries brought to one size, and the size moved on: see _scale.py. Returns the sum of
   the result times the way back to the start; what is not finite does not count, and stays what it is. */
static double to_one_size(int64_t n, const float *g, float *size, const float *p, const float *start, float *out,
                          float keep, float take, float known) {
    const float near = 1e-17f, far = 1e17f; /* between these no square over- or underflows */
    double total = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        float copy[5][BLOCK];
        const int64_t left = n - at < BLOCK ? n - at : BLOCK;
        const float *from[4] = {g + at, size + at, p + at, start + at};
        if (left < BLOCK) for (int k = 0; k < 4; k++) gather(copy[k], from[k], left, 0), from[k] = copy[k];
        float *sizes = left < BLOCK ? copy[1] : size + at, *to = left < BLOCK ? copy[4] : out + at;
        F part = all(0.0f);
        VECTORS {
            F x = load(from[0] + i), old = load(from[1] + i);
            F seen = (F)((I)x & (size_of(x) <= LARGEST)), new = root(old * old * keep + seen * seen * take);
            F largest = greater(size_of(seen), old);
            if (any(((largest < near) & (largest > 0.0f)) | (largest > far)))
                for (int k = 0; k < WIDTH; k++) new[k] = (float)sqrt((double)old[k] * old[k] * keep + (double)seen[k] * seen[k] * take);
            F by = (F)((I)(known / at_least(new, 1e-30f)) & (new > 1e-30f)), small = x * by;
            F back = small * (load(from[3] + i) - load(from[2] + i));
            part += (F)((I)back & (size_of(back) <= LARGEST));
            store(sizes + i, new);
            store(to + i, small);
        }
        total += sum(part);
        if (left < BLOCK) memcpy(size + at, sizes, left * sizeof(float)), memcpy(out + at, to, left * sizeof(float));
    }
    return total;
}

/* The same of a whole tensor, in chunks whose sums are added in order. */
double genie_to_one_size(int64_t n, const float *g, float *size, const float *p, const float *start, float *out,
                         double *parts, float keep, float take, float known, int32_t threads) {
    const int64_t chunks = (n + CHUNK - 1) / CHUNK;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t k = 0; k < chunks; k++) {
        const int64_t at = k * CHUNK, left = n - at < CHUNK ? n - at : CHUNK;
        parts[k] = to_one_size(left, g + at, size + at, p + at, start + at, out + at, keep, take, known);
    }
    double total = 0;
    for (int64_t k = 0; k < chunks; k++) total += parts[k];
    return total;
}

/* The sum of the absolute entries that are finite. */
double genie_sum_of_sizes(int64_t n, const float *m) {
    double total = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        float copy[BLOCK];
        const float *from = m + at;
        if (n - at < BLOCK) gather(copy, from, n - at, 0), from = copy;
        F part = all(0.0f);
        VECTORS {
            F x = size_of(load(from + i));
            part += (F)((I)x & (x <= LARGEST));
        }
        total += sum(part);
    }
    return total;
}
