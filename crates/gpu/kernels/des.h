// DES (FIPS 46-3) on bits, for decryption alone: a word has one bit of each of 32 blocks, so permutations only rename
// words. Encryption in CBC has one block at a time, which des_tables.h does.

// Moves each bit to the other side of the diagonal: bit b of word j and bit j of word b.
INLINE void transpose_32(u32 w[32]) {
    UNROLL for (u32 i = 0; i < 16; i++) exchange(&w[i], &w[i + 16], 16, 0x0000ffff);
    UNROLL for (u32 i = 0; i < 16; i++) exchange(&w[i / 8 * 16 + i % 8], &w[i / 8 * 16 + i % 8 + 8], 8, 0x00ff00ff);
    UNROLL for (u32 i = 0; i < 16; i++) exchange(&w[i / 4 * 8 + i % 4], &w[i / 4 * 8 + i % 4 + 4], 4, 0x0f0f0f0f);
    UNROLL for (u32 i = 0; i < 16; i++) exchange(&w[i / 2 * 4 + i % 2], &w[i / 2 * 4 + i % 2 + 2], 2, 0x33333333);
    UNROLL for (u32 i = 0; i < 16; i++) exchange(&w[2 * i], &w[2 * i + 1], 1, 0x55555555);
}

// Takes the standard's bit `n` of a half of the key, for all blocks.
INLINE u32 des_key_bit(u32 key_half, u32 n) { return 0 - (key_half >> (28 - n) & 1); }

// Adds the output of an S-box to the left half at the places that permutation P gives.
#define DES_BOX(number, i0, i1, i2, i3, i4, i5, key_half, k0, k1, k2, k3, k4, k5, o0, o1, o2, o3)                     \
    des_s##number(out, right[(i0) - 1] ^ des_key_bit(key_half, k0), right[(i1) - 1] ^ des_key_bit(key_half, k1),      \
                  right[(i2) - 1] ^ des_key_bit(key_half, k2), right[(i3) - 1] ^ des_key_bit(key_half, k3),           \
                  right[(i4) - 1] ^ des_key_bit(key_half, k4), right[(i5) - 1] ^ des_key_bit(key_half, k5));          \
    left[(o0) - 1] ^= out[0];                                                                                         \
    left[(o1) - 1] ^= out[1];                                                                                         \
    left[(o2) - 1] ^= out[2];                                                                                         \
    left[(o3) - 1] ^= out[3];

// The boxes with the standard's numbers: of the expansion E, the half of the key, of permuted choice 2 (of D less 28),
// of P.
#define DES_BOXES(BOX)                                                                                                \
    BOX(1, 32, 1, 2, 3, 4, 5, c, 14, 17, 11, 24, 1, 5, 9, 17, 23, 31)                                                 \
    BOX(2, 4, 5, 6, 7, 8, 9, c, 3, 28, 15, 6, 21, 10, 13, 28, 2, 18)                                                  \
    BOX(3, 8, 9, 10, 11, 12, 13, c, 23, 19, 12, 4, 26, 8, 24, 16, 30, 6)                                              \
    BOX(4, 12, 13, 14, 15, 16, 17, c, 16, 7, 27, 20, 13, 2, 26, 20, 10, 1)                                            \
    BOX(5, 16, 17, 18, 19, 20, 21, d, 13, 24, 3, 9, 19, 27, 8, 14, 25, 3)                                             \
    BOX(6, 20, 21, 22, 23, 24, 25, d, 2, 12, 23, 17, 5, 20, 4, 29, 11, 19)                                            \
    BOX(7, 24, 25, 26, 27, 28, 29, d, 16, 21, 11, 28, 6, 25, 32, 12, 22, 7)                                           \
    BOX(8, 28, 29, 30, 31, 32, 1, d, 18, 14, 22, 8, 1, 4, 5, 27, 15, 21)

// A round, without the exchange of the halves. `c` and `d` are the halves of the key, `turns` their rotation.
INLINE void des_round(u32 left[32], const u32 right[32], u32 c, u32 d, u32 turns) {
    u32 out[4];
    c = c << turns | c >> (28 - turns);
    d = d << turns | d >> (28 - turns);
    DES_BOXES(DES_BOX)
}

INLINE void exchange_halves(u32 left[32], u32 right[32]) {
    UNROLL for (u32 i = 0; i < 32; i++) {
        u32 old = left[i];
        left[i] = right[i];
        right[i] = old;
    }
}

// The rotation of the key's halves in round 1 to 16 of encryption: two places a round, one in rounds 1, 2, 9 and 16.
INLINE u32 des_turns(u32 round) { return 2 * round - 1 - (round >= 2) - (round >= 9) - (round >= 16); }

// Decrypts 32 blocks, given as planes of the halves after the initial permutation: with the third key, then encrypts
// with the second, then decrypts with the first. The permutations between the passes cancel out but for an exchange of
// the halves. Before the final permutation the halves are exchanged once more, which the caller does.
INLINE void tdes_decrypt(u32 left[32], u32 right[32], GLOBAL const u32 *keys) {
    LOOP for (u32 pass = 0; pass < 3; pass++) {
        u32 c = keys[4 - 2 * pass], d = keys[5 - 2 * pass];
        LOOP_BY_TWO for (u32 round = 1; round < 17; round++) {
            des_round(left, right, c, d, des_turns(pass == 1 ? round : 17 - round));
            exchange_halves(left, right);
        }
        exchange_halves(left, right);
    }
}

// The place of bit 8q + k of the left half before the initial permutation, as a plane of the block's first or second
// word: byte 7 - k, bit 6 - 2q. The right half has bit 7 - 2q.
#define DES_PLANE(i) (8 * ((7 - (i) % 8) % 4) + 6 - 2 * ((i) / 8))
#define DES_IN_SECOND(i) ((i) % 8 < 4)
