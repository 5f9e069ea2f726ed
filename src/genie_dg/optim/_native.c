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
enum { MASK = 1, PRECONDITION = 2, NOISE = 4, ALGORITHM1 = 8, L2 = 16, MAXIMIZE = 32 };
#define INLINE static inline __attribute__((always_inline))
#define EACH for (int i = 0; i < BLOCK; i += WIDTH)

static const uint32_t GOLDEN = 0x9E3779B9u, MULTIPLY_1 = 0x7FEB352Du, MULTIPLY_2 = 0x846CA68Bu;
static const float CALM = 0.1f, TINY = 1e-8f, LARGEST = 3.40282347e+38f;

typedef struct { float beta, weight, correction, freedom, rho, size, shrink, l2, noise_std; int32_t step; } Scalars;
typedef struct { int64_t tensor, start; double top, bottom; uint64_t live[BLOCKS / 64]; int64_t any_live; } Chunk;
typedef struct { float *p, *m, *v; int64_t size, first_chunk; uint32_t base[2]; int32_t scalars; float kappa; } Tensor;
typedef struct { float *p, *m, *v; const float *g; float kappa; uint32_t row; const uint32_t *lanes; } Block;

INLINE F load(const float *from) { F x; memcpy(&x, from, sizeof x); return x; }
INLINE U load_words(const uint32_t *from) { U x; memcpy(&x, from, sizeof x); return x; }
INLINE void store(float *to, F x) { memcpy(to, &x, sizeof x); }
INLINE F all(float x) { return (F){x, x, x, x, x, x, x, x}; }
INLINE F where(I yes, F a, F b) { return (F)((yes & (I)a) | (~yes & (I)b)); }
INLINE F at_most(F x, float limit) { return where(x > all(limit), all(limit), x); } /* NaN stays NaN */
INLINE F bounded(F x) { return where(x < all(-LARGEST), all(-LARGEST), at_most(x, LARGEST)); }
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

INLINE U element_words(uint32_t row, U lane) {
    U x = (row ^ lane) * MULTIPLY_1;
    return (x ^ (x >> 15)) * MULTIPLY_2;
}

/* tanh for 0 <= x <= 10 as e / (e + 2) with e = exp(2x) - 1 = 2^n (exp(r) - 1) + (2^n - 1) */
INLINE F tanh_of(F x) {
    F y = x + x, shifted = y * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    F r = (y - n * 0.693145752f) - n * 1.42860677e-6f; /* ln 2 in two parts, the first of 16 bits */
    F scale = (F)(((I)shifted - 0x4B400000 + 127) << 23);
    F poly = 1.0f / 720 + r * (1.0f / 5040);
    poly = 1.0f / 24 + r * (1.0f / 120 + r * poly);
    poly = r + r * r * (0.5f + r * (1.0f / 6 + r * poly));
    F e = scale * poly + (scale - 1.0f);
    return e / (e + 2.0f);
}

/* log for 0 < x <= 1, to 1e-7 of the larger of 1 and its size */
INLINE F log_of(F x) {
    I exponent = ((I)x - 0x3F3504F3) >> 23; /* so that x / 2^exponent is between sqrt(1/2) and sqrt(2) */
    F f = (F)((I)x - (exponent << 23)) - 1.0f;
    F poly = -0.14397065341472626f + f * 0.08684581518173218f;
    poly = -0.1656235158443451f + f * (0.14981837570667267f + f * poly);
    poly = -0.25001755356788635f + f * (0.19954313337802887f + f * poly);
    poly = f + f * f * (-0.5f + f * (0.3333418071269989f + f * poly));
    return __builtin_convertvector(exponent, F) * 0.69314718f + poly;
}

static float tail_of(float w) {
    static const float c[] = {-0.00013182344264350832f, 6.076043064240366e-05f,  0.0012532888213172555f,
                              -0.0036336760967969894f,  0.005784050095826387f,   -0.007632669061422348f,
                              0.009432020597159863f,    1.0016746520996094f,     2.832977056503296f};
    float x = sqrtf(w) - 3.0f, y = c[0];
    for (int i = 1; i < 9; i++) y = y * x + c[i];
    return y;
}

INLINE F normal(U word) {
    U bits = word + GOLDEN;
    bits = (bits ^ (bits >> 16)) * MULTIPLY_1;
    bits = (bits ^ (bits >> 15)) * MULTIPLY_2;
    F x = (__builtin_convertvector((I)bits >> 8, F) + 0.5f) * 1.1920929e-7f, product = (1.0f - x) * (1.0f + x);
    F w = -log_of(product), c = w - 2.5f, y = 2.8531987439350814e-08f * c + 3.4372334312138264e-07f;
    y = (y * c - 3.5288260278321104e-06f) * c - 4.396740678203059e-06f;
    y = (y * c + 0.0002186020719818771f) * c - 0.0012537076836451888f;
    y = (y * c - 0.004177707713097334f) * c + 0.24664072692394257f;
    y = y * c + 1.5014094114303589f;
    if (__builtin_expect(any(w >= 5.0f), 0))
        for (int k = 0; k < WIDTH; k++)
            if (w[k] >= 5.0f) y[k] = tail_of(-logf(product[k]));
    return y * x * 1.41421356f;
}

/* Moves the moments and, if every entry is calm, p as well. Returns whether it is; *top is then the sum of |step|. */
INLINE int advance(const int flags, const Block b, const Scalars *s, int32_t threshold, double *top) {
    float steps[BLOCK] __attribute__((aligned(32)));
    I calm = {-1, -1, -1, -1, -1, -1, -1, -1};
    F total = all(0.0f);
    EACH {
        F g = load(b.g + i);
        if (flags & MAXIMIZE) g = -g;
        if (flags & L2) g = g + load(b.p + i) * s->l2;
        F m = load(b.m + i) * s->beta + g * s->weight, v = load(b.v + i) * s->beta + g * g * s->weight;
        store(b.m + i, m);
        store(b.v + i, v);
        F mean = m * s->correction, square = flags & ALGORITHM1 ? m * m : mean * mean;
        F s2 = flags & ALGORITHM1 ? v - square : (v * s->correction - square) * s->freedom;
        calm &= (s2 <= CALM) & (s2 >= -CALM);
        F signal = square + TINY, floored = where(s2 > 0.0f, s2, all(TINY));
        F q = flags & ALGORITHM1 ? square / where(v < TINY, all(TINY), v) : signal / (floored * s->rho + signal);
        F part = mean * q;
        if (flags & NOISE) total += (F)((I)part & 0x7FFFFFFF);
        store(steps + i, flags & PRECONDITION ? part : mean);
    }
    if (any(~calm)) return 0;
    EACH {
        F step = load(steps + i);
        if (flags & MASK) step = (F)((I)step & ~((I)element_words(b.row, load_words(b.lanes + i)) < threshold));
        store(b.p + i, load(b.p + i) * s->shrink - step * s->size);
    }
    *top = sum(total);
    return 1;
}

typedef struct { F mean, gate, q, step; } Direction;

INLINE Direction direction(int flags, F m, F v, const Scalars *s) {
    F mean = bounded(m * s->correction) + m * 0.0f, square, s2, q;
    if (flags & ALGORITHM1) {
        square = at_most(m * m, LARGEST / 4);
        s2 = v - square;
        s2 = where(s2 < TINY, all(TINY), s2);
        q = square / where(v < TINY, all(TINY), v);
    } else {
        square = at_most(mean * mean, LARGEST / 4);
        s2 = at_most((at_most(v * s->correction, LARGEST / 2) - square) * s->freedom, LARGEST);
        s2 = where(s2 <= 0.0f, all(TINY), s2);
        q = (square + TINY) / (square + TINY + s2 * s->rho);
    }
    F gate = tanh_of(at_most(1.0f / s2, 10.0f));
    F step = flags & ALGORITHM1 ? mean * (q * gate) : mean * q * gate;
    return (Direction){mean, gate, q, flags & PRECONDITION ? step : mean};
}

/* Ends the overflow of v and sums the terms of kappa over n entries; those that are not finite do not count. */
static void sums(int flags, const Block b, int n, const Scalars *s, double *top, double *bottom) {
    F tops = all(0.0f), bottoms = all(0.0f);
    I lane = {0, 1, 2, 3, 4, 5, 6, 7};
    EACH {
        F v = at_most(load(b.v + i), LARGEST);
        store(b.v + i, v);
        Direction d = direction(flags, load(b.m + i), v, s);
        F term = at_most(d.gate * (F)((I)d.mean & 0x7FFFFFFF) * d.q, LARGEST / 1099511627776.0f);
        F gate = d.gate + d.mean * 0.0f;
        tops += (F)((I)term & (term == term));
        bottoms += (F)((I)gate & (gate == gate) & (lane + i < n));
    }
    *top = sum(tops);
    *bottom = sum(bottoms);
}

static void finish(int flags, const Block b, const Scalars *s, int32_t threshold) {
    float scale = flags & ALGORITHM1 ? s->noise_std : b.kappa;
    EACH {
        F v = at_most(load(b.v + i), LARGEST);
        store(b.v + i, v);
        Direction d = direction(flags, load(b.m + i), v, s);
        U word = element_words(b.row, load_words(b.lanes + i));
        if (flags & NOISE) d.step += (1.0f - d.gate) * scale * normal(word);
        if (flags & MASK) d.step = bounded(d.step) * where((I)word < threshold, all(0.0f), all(1.0f));
        store(b.p + i, bounded(load(b.p + i) * s->shrink - d.step * s->size));
    }
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
                sums(flags, b, (int)n, s, &part, &gates);
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
