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

enum { WIDTH = 8, BLOCK = 64, CHUNK = 65536, LANES = 256, BLOCKS = CHUNK / BLOCK };
enum { MASK = 1, PRECONDITION = 2, NOISE = 4, ALGORITHM1 = 8, L2 = 16, MAXIMIZE = 32, SHRINK = 64 };
#define INLINE static inline __attribute__((always_inline))
#define VECTORS for (int i = 0; i < BLOCK; i += WIDTH)
#define ENTRIES for (int i = 0; i < BLOCK; i++) /* the compiler makes vectors of these */

static const uint32_t GOLDEN = 0x9E3779B9u, MULTIPLY_1 = 0x7FEB352Du, MULTIPLY_2 = 0x846CA68Bu;
static const float CALM = 0.1f, TINY = 1e-8f, LARGEST = 3.40282347e+38f;

typedef struct { float beta, weight, correction, freedom, rho, size, shrink, l2, noise_std; int32_t step; } Scalars;
typedef struct { int64_t tensor, start; double top, bottom; uint64_t live[BLOCKS / 64]; int64_t any_live; } Chunk;
typedef struct { float *p, *m, *v; int64_t size, first_chunk; uint32_t base[2]; int32_t scalars; float kappa; } Tensor;
typedef struct { float *restrict p, *restrict m, *restrict v; const float *restrict g; float kappa; uint32_t row; const uint32_t *lanes; } Block;

INLINE F load(const float *from) { F x; memcpy(&x, from, sizeof x); return x; }
INLINE U load_words(const uint32_t *from) { U x; memcpy(&x, from, sizeof x); return x; }
INLINE void store(float *to, F x) { memcpy(to, &x, sizeof x); }
INLINE F all(float x) { return (F){x, x, x, x, x, x, x, x}; }
INLINE F where(I yes, F a, F b) { return (F)((yes & (I)a) | (~yes & (I)b)); }
INLINE float at_most(float x, float limit) { return limit < x ? limit : x; } /* NaN stays NaN, and below */
INLINE float at_least(float x, float limit) { return limit > x ? limit : x; }
INLINE float bounded(float x) { return at_least(at_most(x, LARGEST), -LARGEST); }
INLINE uint32_t as_word(float x) { uint32_t y; memcpy(&y, &x, sizeof y); return y; }
INLINE float as_float(uint32_t x) { float y; memcpy(&y, &x, sizeof y); return y; }
INLINE int any(I x) { int64_t w[4]; memcpy(w, &x, sizeof w); return (w[0] | w[1] | w[2] | w[3]) != 0; }
INLINE float sum(F x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

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

INLINE uint32_t element_word(uint32_t row, uint32_t lane) {
    uint32_t x = (row ^ lane) * MULTIPLY_1;
    return (x ^ (x >> 15)) * MULTIPLY_2;
}

INLINE U element_words(uint32_t row, U lane) {
    U x = (row ^ lane) * MULTIPLY_1;
    return (x ^ (x >> 15)) * MULTIPLY_2;
}

/* tanh for 0 <= x <= 10 as e / (e + 2) with e = exp(2x) - 1 = 2^n (exp(r) - 1) + (2^n - 1) */
INLINE float tanh_of(float x) {
    float y = x + x, shifted = y * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    float r = (y - n * 0.693145752f) - n * 1.42860677e-6f; /* ln 2 in two parts, the first of 16 bits */
    float scale = as_float((as_word(shifted) - 0x4B400000u + 127) << 23);
    float poly = 1.0f / 720 + r * (1.0f / 5040);
    poly = 1.0f / 24 + r * (1.0f / 120 + r * poly);
    poly = r + r * r * (0.5f + r * (1.0f / 6 + r * poly));
    float e = scale * poly + (scale - 1.0f);
    return e / (e + 2.0f);
}

/* log for 0 < x <= 1, to 1e-7 of the larger of 1 and its size */
INLINE float log_of(float x) {
    int32_t exponent = ((int32_t)as_word(x) - 0x3F3504F3) >> 23; /* x / 2^exponent is in sqrt(1/2) ... sqrt(2) */
    float f = as_float(as_word(x) - ((uint32_t)exponent << 23)) - 1.0f;
    float poly = -0.14397065341472626f + f * 0.08684581518173218f;
    poly = -0.1656235158443451f + f * (0.14981837570667267f + f * poly);
    poly = -0.25001755356788635f + f * (0.19954313337802887f + f * poly);
    poly = f + f * f * (-0.5f + f * (0.3333418071269989f + f * poly));
    return (float)exponent * 0.69314718f + poly;
}

INLINE float uniform(uint32_t word) {
    uint32_t x = word + GOLDEN;
    x = (x ^ (x >> 16)) * MULTIPLY_1;
    x = (x ^ (x >> 15)) * MULTIPLY_2;
    return ((float)((int32_t)x >> 8) + 0.5f) * 1.1920929e-7f;
}

INLINE float centre_of(float w) {
    float c = w - 2.5f, y = 2.8531987439350814e-08f * c + 3.4372334312138264e-07f;
    y = (y * c - 3.5288260278321104e-06f) * c - 4.396740678203059e-06f;
    y = (y * c + 0.0002186020719818771f) * c - 0.0012537076836451888f;
    y = (y * c - 0.004177707713097334f) * c + 0.24664072692394257f;
    return y * c + 1.5014094114303589f;
}

static float tail_of(float w) {
    static const float c[] = {-0.00013182344264350832f, 6.076043064240366e-05f, 0.0012532888213172555f,
                              -0.0036336760967969894f,  0.005784050095826387f,  -0.007632669061422348f,
                              0.009432020597159863f,    1.0016746520996094f,    2.832977056503296f};
    float x = sqrtf(w) - 3.0f, y = c[0];
    for (int i = 1; i < 9; i++) y = y * x + c[i];
    return y;
}

/* Standard normal numbers of a block. The loops are short so that the processor can overlap their entries. */
INLINE void normals(const uint32_t *words, float *xi) {
    float w[BLOCK], x[BLOCK];
    ENTRIES x[i] = uniform(words[i]);
    ENTRIES w[i] = -log_of((1.0f - x[i]) * (1.0f + x[i]));
    ENTRIES xi[i] = centre_of(w[i]);
    int tails = 0;
    ENTRIES tails |= w[i] >= 5.0f;
    if (tails) ENTRIES xi[i] = w[i] >= 5.0f ? tail_of(w[i]) : xi[i];
    ENTRIES xi[i] = xi[i] * x[i] * 1.41421356f;
}

/* Moves the moments and, if every entry is calm, p as well. Returns whether it is; *top is then the sum of |step|. */
INLINE int advance(const int flags, const Block b, const Scalars *s, int32_t threshold, double *top) {
    float steps[BLOCK] __attribute__((aligned(32)));
    I calm = {-1, -1, -1, -1, -1, -1, -1, -1};
    F total = all(0.0f);
    VECTORS {
        F g = load(b.g + i);
        if (flags & MAXIMIZE) g = -g;
        if (flags & L2) g = g + load(b.p + i) * s->l2;
        F m = load(b.m + i) * s->beta + g * s->weight, v = load(b.v + i) * s->beta + g * g * s->weight;
        store(b.m + i, m);
        store(b.v + i, v);
        F mean = m * s->correction, square = flags & ALGORITHM1 ? m * m : mean * mean;
        F s2 = flags & ALGORITHM1 ? v - square : (v * s->correction - square) * s->freedom;
        calm &= (F)((I)s2 & 0x7FFFFFFF) <= CALM;
        F signal = square + TINY, floored = where(s2 > 0.0f, s2, all(TINY));
        F q = flags & ALGORITHM1 ? square / where(v < TINY, all(TINY), v) : signal / (floored * s->rho + signal);
        F part = mean * q;
        if (flags & NOISE) total += (F)((I)part & 0x7FFFFFFF);
        store(steps + i, flags & PRECONDITION ? part : mean);
    }
    if (any(~calm)) return 0;
    VECTORS {
        F step = load(steps + i);
        if (flags & MASK) step = (F)((I)step & ~((I)element_words(b.row, load_words(b.lanes + i)) < threshold));
        F p = load(b.p + i);
        store(b.p + i, (flags & SHRINK ? p * s->shrink : p) - step * s->size);
    }
    *top = sum(total);
    return 1;
}

/* Mean, gate and trust of a block, safe against overflow, which ends in v as well; NaN where m is not finite. */
static void direction(int flags, const float *restrict m, float *restrict v, const Scalars *s, float *restrict mean,
                      float *restrict gate, float *restrict q) {
    const float correction = s->correction, freedom = s->freedom, rho = s->rho;
    ENTRIES v[i] = at_most(v[i], LARGEST);
    ENTRIES mean[i] = bounded(m[i] * correction) + m[i] * 0.0f;
    if (flags & ALGORITHM1) {
        ENTRIES {
            float square = at_most(m[i] * m[i], LARGEST / 4);
            gate[i] = at_most(1.0f / at_least(v[i] - square, TINY), 10.0f);
            q[i] = square / at_least(v[i], TINY);
        }
    } else {
        ENTRIES {
            float square = at_most(mean[i] * mean[i], LARGEST / 4), second = at_most(v[i] * correction, LARGEST / 2);
            float raw = at_most((second - square) * freedom, LARGEST), s2 = raw <= 0.0f ? TINY : raw;
            gate[i] = at_most(1.0f / s2, 10.0f);
            q[i] = (square + TINY) / (square + TINY + s2 * rho);
        }
    }
    ENTRIES gate[i] = tanh_of(gate[i]);
}

/* Sums the terms of kappa over n entries; those that are not finite do not count. */
static void sums(const Block b, int64_t n, const Scalars *s, double *top, double *bottom) {
    float mean[BLOCK], gate[BLOCK], q[BLOCK];
    direction(0, b.m, b.v, s, mean, gate, q);
    ENTRIES q[i] = at_most(gate[i] * fabsf(mean[i]) * q[i], LARGEST / 1099511627776.0f);
    ENTRIES q[i] = q[i] == q[i] ? q[i] : 0.0f;
    ENTRIES gate[i] = mean[i] == mean[i] ? gate[i] : 0.0f;
    for (int64_t i = n; i < BLOCK; i++) q[i] = gate[i] = 0.0f;
    F tops = all(0.0f), gates = all(0.0f);
    VECTORS {
        tops += load(q + i);
        gates += load(gate + i);
    }
    *top = sum(tops), *bottom = sum(gates);
}

static void finish(int flags, const Block b, const Scalars *s, int32_t threshold) {
    float mean[BLOCK], gate[BLOCK], q[BLOCK], xi[BLOCK], scale = flags & ALGORITHM1 ? s->noise_std : b.kappa;
    uint32_t words[BLOCK];
    direction(flags, b.m, b.v, s, mean, gate, q);
    if (flags & PRECONDITION) {
        if (flags & ALGORITHM1) ENTRIES mean[i] = mean[i] * (q[i] * gate[i]);
        else ENTRIES mean[i] = mean[i] * q[i] * gate[i];
    }
    if (flags & (NOISE | MASK)) ENTRIES words[i] = element_word(b.row, b.lanes[i]);
    if (flags & NOISE) {
        normals(words, xi);
        ENTRIES mean[i] += (1.0f - gate[i]) * scale * xi[i];
    }
    if (flags & MASK) ENTRIES mean[i] = bounded(mean[i]) * ((int32_t)words[i] < threshold ? 0.0f : 1.0f);
    if (flags & SHRINK) ENTRIES b.p[i] *= s->shrink;
    ENTRIES b.p[i] = bounded(b.p[i] - mean[i] * s->size);
}

/* The elements of a chunk: all blocks when the moments have to move, else those that were left for later. */
INLINE void chunk(const int flags, int later, Chunk *c, const Tensor *t, const float *g, const Scalars *s,
                  int32_t threshold, const uint32_t *lanes) {
    uint32_t step = (uint32_t)s->step * GOLDEN, key0 = mix(t->base[0] + step), key1 = mix(t->base[1] + step);
    int64_t stop = t->size < c->start + CHUNK ? t->size : c->start + CHUNK;
    double top = 0, bottom = 0;
    if (!later) memset(c->live, 0, sizeof c->live), c->any_live = 0;
    for (int64_t at = c->start, k = 0; at < stop; at += BLOCK, k++) {
        uint64_t *live = c->live + k / 64, bit = (uint64_t)1 << k % 64;
        if (later && !(*live & bit)) continue;
        int64_t n = stop - at < BLOCK ? stop - at : BLOCK;
        Block b = {t->p + at, t->m + at, t->v + at, g + at, t->kappa, 0, lanes + at % LANES};
        b.row = row_word((uint32_t)(at / LANES), key0, key1);
        float copy[4][BLOCK];
        if (n < BLOCK) { /* the last block of a tensor: a copy filled up with zeros, which are calm */
            memset(copy, 0, sizeof copy);
            memcpy(copy[0], b.p, n * sizeof(float));
            memcpy(copy[1], b.m, n * sizeof(float));
            memcpy(copy[2], b.v, n * sizeof(float));
            if (!later) memcpy(copy[3], b.g, n * sizeof(float));
            b.p = copy[0], b.m = copy[1], b.v = copy[2], b.g = copy[3];
        }
        double part = 0, gates = n;
        if (later) {
            finish(flags, b, s, threshold);
        } else if (!advance(flags, b, s, threshold, &part)) {
            if ((flags & NOISE) && !(flags & ALGORITHM1)) {
                sums(b, n, s, &part, &gates);
                *live |= bit;
                c->any_live = 1;
            } else {
                finish(flags, b, s, threshold);
            }
        }
        top += part;
        bottom += gates;
        if (n < BLOCK) {
            memcpy(t->p + at, copy[0], n * sizeof(float));
            memcpy(t->m + at, copy[1], n * sizeof(float));
            memcpy(t->v + at, copy[2], n * sizeof(float));
        }
    }
    if (!later) c->top = top, c->bottom = bottom;
}

/* One step. The tensors, whose chunks follow one another, and the chunks are kept by the caller between steps. */
void genie_step(Tensor *tensors, int64_t count, Chunk *chunks, int64_t total, const float *const *grads,
                const Scalars *scalars, int32_t flags, int32_t threshold, int32_t threads) {
    uint32_t lanes[LANES];
    for (uint32_t i = 0; i < LANES; i++) lanes[i] = mix((i + 1) * GOLDEN);
    const int full = MASK | PRECONDITION | NOISE;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t i = 0; i < total; i++) {
        Chunk *c = chunks + i;
        Tensor *t = tensors + c->tensor;
        const Scalars *s = scalars + t->scalars;
        if (flags == full) chunk(full, 0, c, t, grads[c->tensor], s, threshold, lanes);
        else if (flags == PRECONDITION) chunk(PRECONDITION, 0, c, t, grads[c->tensor], s, threshold, lanes);
        else chunk(flags, 0, c, t, grads[c->tensor], s, threshold, lanes);
    }
    if (!(flags & NOISE) || (flags & ALGORITHM1)) return;
    int64_t live = 0;
    for (int64_t i = 0; i < count; i++) { /* in order and in double: the same kappa for any number of threads */
        Tensor *t = tensors + i;
        double top = 0, bottom = 0;
        for (int64_t k = 0; k * CHUNK < t->size; k++) {
            const Chunk *c = chunks + t->first_chunk + k;
            top += c->top, bottom += c->bottom, live |= c->any_live;
        }
        t->kappa = bottom > 0 ? (float)(top / bottom) : 0.0f;
    }
    if (!live) return;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t i = 0; i < total; i++) {
        Tensor *t = tensors + chunks[i].tensor;
        if (chunks[i].any_live) chunk(flags, 1, chunks + i, t, t->p, scalars + t->scalars, threshold, lanes);
    }
}
