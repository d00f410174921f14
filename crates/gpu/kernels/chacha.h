// ChaCha20 (RFC 8439 §2.3).

INLINE void quarter_round(u32 x[16], u32 a, u32 b, u32 c, u32 d) {
    x[a] += x[b];
    x[d] = rotate_left(x[d] ^ x[a], 16);
    x[c] += x[d];
    x[b] = rotate_left(x[b] ^ x[c], 12);
    x[a] += x[b];
    x[d] = rotate_left(x[d] ^ x[a], 8);
    x[c] += x[d];
    x[b] = rotate_left(x[b] ^ x[c], 7);
}

// Computes a block of the key stream.
INLINE void chacha_block(u32 x[16], GLOBAL const u32 *key, u32 counter, const u32 nonce[3]) {
    u32 first[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3],
                     key[4], key[5], key[6], key[7], counter, nonce[0], nonce[1], nonce[2]};
    UNROLL for (u32 i = 0; i < 16; i++) x[i] = first[i];
    LOOP for (u32 round = 0; round < 10; round++) {
        quarter_round(x, 0, 4, 8, 12);
        quarter_round(x, 1, 5, 9, 13);
        quarter_round(x, 2, 6, 10, 14);
        quarter_round(x, 3, 7, 11, 15);
        quarter_round(x, 0, 5, 10, 15);
        quarter_round(x, 1, 6, 11, 12);
        quarter_round(x, 2, 7, 8, 13);
        quarter_round(x, 3, 4, 9, 14);
    }
    UNROLL for (u32 i = 0; i < 16; i++) x[i] += first[i];
}
