// GHASH (SP 800-38D §6.4) by integer multiplication with holes, without carry-less instructions or tables: each factor
// is split into four parts that have every fourth bit, so that carries stay within three zero bits. The method is
// described in BearSSL's "Constant-Time Crypto".

// An element of GF(2^128). Word 0 is the first in memory, read as big endian, so that its most significant bit is the
// coefficient of x^0.
struct element {
    u32 word[4];
};

// The product of two polynomials of degree 31. A sum has at most eight bits in a column, so its carries end below the
// next column.
INLINE u64 carryless(u32 a, u32 b) {
    u64 a0 = a & 0x11111111, a1 = a & 0x22222222, a2 = a & 0x44444444, a3 = a & 0x88888888;
    u64 b0 = b & 0x11111111, b1 = b & 0x22222222, b2 = b & 0x44444444, b3 = b & 0x88888888;
    u64 p0 = a0 * b0 ^ a1 * b3 ^ a2 * b2 ^ a3 * b1;
    u64 p1 = a0 * b1 ^ a1 * b0 ^ a2 * b3 ^ a3 * b2;
    u64 p2 = a0 * b2 ^ a1 * b1 ^ a2 * b0 ^ a3 * b3;
    u64 p3 = a0 * b3 ^ a1 * b2 ^ a2 * b1 ^ a3 * b0;
    return (p0 & 0x1111111111111111) | (p1 & 0x2222222222222222) | (p2 & 0x4444444444444444) |
           (p3 & 0x8888888888888888);
}

// Adds the product of two polynomials of degree 63 to four words, the most significant first. Karatsuba's method
// saves the fourth product.
INLINE void add_product(u32 sum[4], u32 a_high, u32 a_low, u32 b_high, u32 b_low) {
    u64 high = carryless(a_high, b_high);
    u64 low = carryless(a_low, b_low);
    u64 middle = carryless(a_high ^ a_low, b_high ^ b_low) ^ high ^ low;
    sum[0] ^= (u32)(high >> 32);
    sum[1] ^= (u32)high ^ (u32)(middle >> 32);
    sum[2] ^= (u32)(low >> 32) ^ (u32)middle;
    sum[3] ^= (u32)low;
}

// Multiplies `a` by the element whose quotient by x is `b`. As bits are reflected, a product of integers lies one
// place lower than the product of the polynomials; the division has moved it to its place.
INLINE void multiply(struct element *a, const struct element *b) {
    u32 high[4] = {0, 0, 0, 0}, low[4] = {0, 0, 0, 0}, middle[4] = {0, 0, 0, 0};
    add_product(high, a->word[0], a->word[1], b->word[0], b->word[1]);
    add_product(low, a->word[2], a->word[3], b->word[2], b->word[3]);
    add_product(middle, a->word[0] ^ a->word[2], a->word[1] ^ a->word[3], b->word[0] ^ b->word[2],
                b->word[1] ^ b->word[3]);
    UNROLL for (u32 i = 0; i < 4; i++) middle[i] ^= high[i] ^ low[i];
    u32 product[8] = {high[0], high[1], high[2] ^ middle[0], high[3] ^ middle[1],
                      low[0] ^ middle[2], low[1] ^ middle[3], low[2], low[3]};
    // Reduces by x^128 = x^7 + x^2 + x + 1, beginning with the highest powers, which are the last words.
    UNROLL for (u32 i = 7; i > 3; i--) {
        u32 word = product[i];
        product[i - 4] ^= word ^ word >> 1 ^ word >> 2 ^ word >> 7;
        product[i - 3] ^= word << 31 ^ word << 30 ^ word << 25;
    }
    UNROLL for (u32 i = 0; i < 4; i++) a->word[i] = product[i];
}

// Divides by x: 1/x = x^127 + x^6 + x + 1. The coefficient of x^0 selects by a mask.
INLINE void divide_by_x(struct element *result, const struct element *a) {
    u32 odd = 0 - (a->word[0] >> 31);
    result->word[0] = (a->word[0] << 1 | a->word[1] >> 31) ^ (odd & 0xc2000000);
    result->word[1] = a->word[1] << 1 | a->word[2] >> 31;
    result->word[2] = a->word[2] << 1 | a->word[3] >> 31;
    result->word[3] = a->word[3] << 1 ^ (odd & 1);
}

INLINE void load_power(struct element *result, GLOBAL const u32 *rows, u32 key, u32 power) {
    u32 at = key + ROW_POWERS + 4 * (power - 1);
    UNROLL for (u32 i = 0; i < 4; i++) result->word[i] = rows[at + i];
}
