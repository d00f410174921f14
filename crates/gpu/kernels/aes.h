// AES (FIPS 197) on bits. A state holds two blocks as eight planes; plane n has bit n of each byte. Row r, column c of
// block b is bit 8r + 2c + b of a plane. No instruction depends on data, and nothing is looked up in tables.
//
// The S-box has the constant 0x63, which passes ShiftRows and MixColumns unchanged. Round keys 1 and up contain it, so
// the S-box here is without it, in both directions.

#define PLANES 8
#define FIRST_BLOCK 0x55555555u

// Exchanges the bits `mask << shift` of `low` and the bits `mask` of `high`.
INLINE void exchange(u32 *low, u32 *high, u32 shift, u32 mask) {
    u32 difference = ((*low >> shift) ^ *high) & mask;
    *high ^= difference;
    *low ^= difference << shift;
}

// Converts between words and planes. Words 0, 2, 4, 6 are the columns of the first block, the others those of the
// second.
INLINE void transpose(u32 q[PLANES]) {
    exchange(&q[0], &q[1], 1, 0x55555555);
    exchange(&q[2], &q[3], 1, 0x55555555);
    exchange(&q[4], &q[5], 1, 0x55555555);
    exchange(&q[6], &q[7], 1, 0x55555555);
    exchange(&q[0], &q[2], 2, 0x33333333);
    exchange(&q[1], &q[3], 2, 0x33333333);
    exchange(&q[4], &q[6], 2, 0x33333333);
    exchange(&q[5], &q[7], 2, 0x33333333);
    exchange(&q[0], &q[4], 4, 0x0f0f0f0f);
    exchange(&q[1], &q[5], 4, 0x0f0f0f0f);
    exchange(&q[2], &q[6], 4, 0x0f0f0f0f);
    exchange(&q[3], &q[7], 4, 0x0f0f0f0f);
}

// The S-box without its constant: the circuit of Boyar and Peralta, "A new combinational logic minimization technique
// with applications to cryptology" (IACR ePrint 2009/191), without its four inverters. The names are theirs.
INLINE void sub_bytes(u32 q[PLANES]) {
    u32 x0 = q[7], x1 = q[6], x2 = q[5], x3 = q[4], x4 = q[3], x5 = q[2], x6 = q[1], x7 = q[0];

    // The linear layer that prepares the inversion.
    u32 y14 = x3 ^ x5, y13 = x0 ^ x6, y9 = x0 ^ x3, y8 = x0 ^ x5, t0 = x1 ^ x2;
    u32 y1 = t0 ^ x7, y4 = y1 ^ x3, y12 = y13 ^ y14, y2 = y1 ^ x0, y5 = y1 ^ x6, y3 = y5 ^ y8;
    u32 t1 = x4 ^ y12, y15 = t1 ^ x5, y20 = t1 ^ x1, y6 = y15 ^ x7, y10 = y15 ^ t0, y11 = y20 ^ y9;
    u32 y7 = x7 ^ y11, y17 = y10 ^ y11, y19 = y10 ^ y8, y16 = t0 ^ y11, y21 = y13 ^ y16, y18 = x0 ^ y16;

    // The inversion in GF(2^8), by way of GF(2^4).
    u32 t2 = y12 & y15, t4 = (y3 & y6) ^ t2, t6 = (y4 & x7) ^ t2;
    u32 t7 = y13 & y16, t9 = (y5 & y1) ^ t7, t11 = (y2 & y7) ^ t7;
    u32 t12 = y9 & y11, t14 = (y14 & y17) ^ t12, t16 = (y8 & y10) ^ t12;
    u32 t21 = t4 ^ t14 ^ y20, t22 = t6 ^ t16 ^ y19, t23 = t9 ^ t14 ^ y21, t24 = t11 ^ t16 ^ y18;
    u32 t25 = t21 ^ t22, t26 = t21 & t23, t27 = t24 ^ t26, t29 = (t25 & t27) ^ t22;
    u32 t30 = t23 ^ t24, t31 = t22 ^ t26, t33 = (t31 & t30) ^ t24, t34 = t23 ^ t33, t35 = t27 ^ t33;
    u32 t36 = t24 & t35, t37 = t36 ^ t34, t38 = t27 ^ t36, t40 = t25 ^ (t29 & t38);
    u32 t41 = t40 ^ t37, t42 = t29 ^ t33, t43 = t29 ^ t40, t44 = t33 ^ t37, t45 = t42 ^ t41;
    u32 z0 = t44 & y15, z1 = t37 & y6, z2 = t33 & x7, z3 = t43 & y16, z4 = t40 & y1, z5 = t29 & y7;
    u32 z6 = t42 & y11, z7 = t45 & y17, z8 = t41 & y10, z9 = t44 & y12, z10 = t37 & y3, z11 = t33 & y4;
    u32 z12 = t43 & y13, z13 = t40 & y5, z14 = t29 & y2, z15 = t42 & y9, z16 = t45 & y14, z17 = t41 & y8;

    // The linear layer that leaves the tower field and does the S-box's own matrix.
    u32 t46 = z15 ^ z16, t48 = z5 ^ z13, t50 = z2 ^ z12, t53 = z0 ^ z3, t54 = z6 ^ z7;
    u32 t57 = t50 ^ t53, t58 = z4 ^ t46, t59 = z3 ^ t54, t60 = t46 ^ t57, t61 = z14 ^ t57;
    u32 t62 = z7 ^ z8 ^ t58, t63 = z9 ^ z10 ^ t58, t64 = z4 ^ t59, t65 = t61 ^ t62, t66 = z1 ^ t63;
    u32 s3 = t53 ^ t66;
    q[7] = t59 ^ t63;
    q[6] = t64 ^ s3;
    q[5] = z16 ^ z17 ^ t64 ^ t65;
    q[4] = s3;
    q[3] = z2 ^ z5 ^ t66;
    q[2] = z10 ^ z11 ^ t65;
    q[1] = z12 ^ t48 ^ t62;
    q[0] = t48 ^ t60;
}

// The inverse of the S-box's matrix (FIPS 197 §5.3.2): bit n of the result is the sum of bits n+2, n+5 and n+7.
INLINE void undo_matrix(u32 q[PLANES]) {
    u32 p[PLANES];
    UNROLL for (u32 n = 0; n < PLANES; n++) p[n] = q[(n + 2) % 8] ^ q[(n + 5) % 8] ^ q[(n + 7) % 8];
    UNROLL for (u32 n = 0; n < PLANES; n++) q[n] = p[n];
}

// The inverse S-box. The inversion is its own inverse, so the S-box between two inverse matrices does it.
INLINE void inverse_sub_bytes(u32 q[PLANES]) {
    undo_matrix(q);
    sub_bytes(q);
    undo_matrix(q);
}

// Row r moves by r columns: rows 2 and 3 by two columns, then rows 1 and 3 by one.
INLINE void shift_rows(u32 q[PLANES]) {
    UNROLL for (u32 n = 0; n < PLANES; n++) {
        u32 x = q[n];
        u32 difference = (x ^ x >> 4) & 0x0f0f0000;
        x ^= difference ^ difference << 4;
        q[n] = (x >> 2 & 0x3f003f00) | (x << 6 & 0xc000c000) | (x & 0x00ff00ff);
    }
}

INLINE void inverse_shift_rows(u32 q[PLANES]) {
    UNROLL for (u32 n = 0; n < PLANES; n++) {
        u32 x = q[n];
        u32 difference = (x ^ x >> 4) & 0x0f0f0000;
        x ^= difference ^ difference << 4;
        q[n] = (x << 2 & 0xfc00fc00) | (x >> 6 & 0x03000300) | (x & 0x00ff00ff);
    }
}

// Each byte a of a column, above b, c and d, becomes 2(a + b) + b + c + d. The sum of neighbours serves twice.
INLINE void mix_columns(u32 q[PLANES]) {
    u32 below[PLANES], sum[PLANES];
    UNROLL for (u32 n = 0; n < PLANES; n++) {
        below[n] = rotate_left(q[n], 24);
        sum[n] = q[n] ^ below[n];
    }
    UNROLL for (u32 n = 0; n < PLANES; n++) {
        // Doubling moves the bits up; the reduction by 0x1b touches bits 0, 1, 3 and 4.
        u32 doubled = n == 0 ? sum[7] : n == 1 || n == 3 || n == 4 ? sum[n - 1] ^ sum[7] : sum[n - 1];
        q[n] = doubled ^ below[n] ^ rotate_left(sum[n], 16);
    }
}

// The matrix (14, 11, 13, 9) is that of MixColumns times (5, 0, 4, 0): add four times the sum of a byte and the one
// two rows away, and then do MixColumns.
INLINE void inverse_mix_columns(u32 q[PLANES]) {
    u32 u[PLANES];
    UNROLL for (u32 n = 0; n < PLANES; n++) u[n] = q[n] ^ rotate_left(q[n], 16);
    u32 carry = u[6] ^ u[7];
    q[0] ^= u[6];
    q[1] ^= carry;
    q[2] ^= u[0] ^ u[7];
    q[3] ^= u[1] ^ u[6];
    q[4] ^= u[2] ^ carry;
    q[5] ^= u[3] ^ u[7];
    q[6] ^= u[4];
    q[7] ^= u[5];
    mix_columns(q);
}

// Adds a round key to each block. The keys are offsets in `rows`; for two blocks of one key they are equal.
INLINE void add_round_key(u32 q[PLANES], GLOBAL const u32 *rows, u32 first, u32 second, u32 round) {
    u32 at = ROW_ROUND_KEYS + PLANES * round;
    UNROLL for (u32 n = 0; n < PLANES; n += 4) {
        u32 a[4], b[4];
        load_four(a, rows + first + at + n);
        load_four(b, rows + second + at + n);
        UNROLL for (u32 i = 0; i < 4; i++) q[n + i] ^= (a[i] & FIRST_BLOCK) | (b[i] & ~FIRST_BLOCK);
    }
}

// Encrypts two blocks. All lanes run `trips` rounds, and a lane with fewer rounds rests in the last ones.
INLINE void aes_encrypt(u32 q[PLANES], GLOBAL const u32 *rows, u32 first, u32 second, u32 rounds, u32 trips) {
    add_round_key(q, rows, first, second, 0);
    LOOP for (u32 round = 1; round <= trips; round++) {
        if (round <= rounds) {
            sub_bytes(q);
            shift_rows(q);
            if (round != rounds) mix_columns(q);
            add_round_key(q, rows, first, second, round);
        }
    }
}

// Decrypts two blocks of one key.
INLINE void aes_decrypt(u32 q[PLANES], GLOBAL const u32 *rows, u32 key, u32 rounds) {
    add_round_key(q, rows, key, key, rounds);
    LOOP for (u32 round = rounds; round > 0; round--) {
        if (round != rounds) inverse_mix_columns(q);
        inverse_shift_rows(q);
        inverse_sub_bytes(q);
        add_round_key(q, rows, key, key, round - 1);
    }
}
