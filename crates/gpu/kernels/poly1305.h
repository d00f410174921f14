// Poly1305 (RFC 8439 §2.5) with five limbs of 26 bits, so that products and their sums fit 64 bits.

#define LIMB 0x3ffffffu

struct poly1305 {
    u32 r[5], h[5], s[4];
};

// Splits 128 bits, given as little-endian words, into limbs.
INLINE void split_limbs(u32 limb[5], const u32 word[4]) {
    limb[0] = word[0] & LIMB;
    limb[1] = (word[0] >> 26 | word[1] << 6) & LIMB;
    limb[2] = (word[1] >> 20 | word[2] << 12) & LIMB;
    limb[3] = (word[2] >> 14 | word[3] << 18) & LIMB;
    limb[4] = word[3] >> 8;
}

INLINE void poly1305_start(struct poly1305 *m, const u32 key[8]) {
    u32 r[4] = {key[0] & 0x0fffffff, key[1] & 0x0ffffffc, key[2] & 0x0ffffffc, key[3] & 0x0ffffffc};
    split_limbs(m->r, r);
    UNROLL for (u32 i = 0; i < 5; i++) m->h[i] = 0;
    UNROLL for (u32 i = 0; i < 4; i++) m->s[i] = key[4 + i];
}

// Adds a block and multiplies by r, modulo 2^130 - 5. Without `top`, the bit behind the block, the block must be zero:
// before the first block this changes nothing.
INLINE void poly1305_block(struct poly1305 *m, const u32 word[4], u32 top) {
    u32 limb[5];
    split_limbs(limb, word);
    limb[4] |= top << 24;
    UNROLL for (u32 i = 0; i < 5; i++) m->h[i] += limb[i];
    u64 carry = 0;
    u32 next[5];
    UNROLL for (u32 i = 0; i < 5; i++) {
        u64 sum = carry;
        // 2^130 is 5, so limbs behind the fifth come back five times.
        UNROLL for (u32 j = 0; j < 5; j++) sum += (u64)m->h[j] * (j <= i ? m->r[i - j] : 5 * m->r[5 + i - j]);
        next[i] = (u32)sum & LIMB;
        carry = sum >> 26;
    }
    // The carry is below 2^35, five times it below 2^38.
    carry = next[0] + carry * 5;
    m->h[0] = (u32)carry & LIMB;
    m->h[1] = next[1] + (u32)(carry >> 26);
    UNROLL for (u32 i = 2; i < 5; i++) m->h[i] = next[i];
}

// Reduces the sum fully and adds s.
INLINE void poly1305_finish(struct poly1305 *m, u32 tag[4]) {
    u32 *h = m->h;
    u32 carry = 0;
    // Two passes leave all limbs below 2^26.
    UNROLL for (u32 pass = 0; pass < 2; pass++) {
        UNROLL for (u32 i = 0; i < 5; i++) {
            u32 sum = h[i] + carry;
            h[i] = sum & LIMB;
            carry = sum >> 26;
        }
        carry *= 5;
    }
    h[0] += carry;
    // Subtracts 2^130 - 5 if it can be subtracted: adding 5 then carries out of the top.
    u32 reduced[5];
    carry = 5;
    UNROLL for (u32 i = 0; i < 5; i++) {
        u32 sum = h[i] + carry;
        reduced[i] = sum & LIMB;
        carry = sum >> 26;
    }
    u32 mask = 0 - carry;
    UNROLL for (u32 i = 0; i < 5; i++) h[i] = (h[i] & ~mask) | (reduced[i] & mask);
    u32 word[4] = {h[0] | h[1] << 26, h[1] >> 6 | h[2] << 20, h[2] >> 12 | h[3] << 14, h[3] >> 18 | h[4] << 8};
    u64 sum = 0;
    UNROLL for (u32 i = 0; i < 4; i++) {
        sum += (u64)word[i] + m->s[i];
        tag[i] = (u32)sum;
        sum >>= 32;
    }
}
