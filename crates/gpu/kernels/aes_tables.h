#ifdef TABLES
// AES (FIPS 197) by lookups, a block as four words. The tables lie in local memory. Which entry is read depends on key
// and data: who can measure this device's time or its caches may learn the key.
//
// A table has the four products of MixColumns for a value of the S-box, and the other rows of a column are rotations of
// it. Each of TABLE_COPIES lanes has a copy, in a memory bank of its own, so that no lookup waits for another.

#define TABLE_COPIES 32
#define TABLE_WORDS (256 * TABLE_COPIES)

// Doubles each byte of a word.
INLINE u32 double_bytes(u32 word) { return (word & 0x7f7f7f7f) << 1 ^ (word >> 7 & 0x01010101) * 0x1b; }

// MixColumns for a column, as in aes.h.
INLINE u32 mix_column(u32 word) {
    u32 below = rotate_left(word, 24);
    u32 sum = word ^ below;
    return double_bytes(sum) ^ below ^ rotate_left(sum, 16);
}

// Computes the lane's part of a table, which is four entries, for all copies.
INLINE void load_aes_table(LOCAL u32 *table, u32 lane, u32 inverse) {
    u32 values = 0x03020100 + 0x04040404 * lane;
    u32 q[PLANES] = {inverse ? values ^ 0x63636363 : values, 0, 0, 0, 0, 0, 0, 0};
    transpose(q);
    if (inverse) inverse_sub_bytes(q);
    else sub_bytes(q);
    transpose(q);
    u32 boxed = inverse ? q[0] : q[0] ^ 0x63636363;
    u32 entry[4];
    UNROLL for (u32 i = 0; i < 4; i++) {
        u32 once = boxed >> 8 * i & 0xff;
        u32 twice = double_bytes(once);
        u32 four = double_bytes(twice);
        u32 eight = double_bytes(four);
        u32 nine = eight ^ once;
        entry[i] = inverse ? (eight ^ four ^ twice) | nine << 8 | (nine ^ four) << 16 | (nine ^ twice) << 24
                           : twice | once << 8 | once << 16 | (twice ^ once) << 24;
    }
    // Each lane begins with another copy, so that lanes write to different banks.
    LOOP for (u32 n = 0; n < TABLE_COPIES; n++) {
        LOCAL u32 *copy = table + 4 * lane * TABLE_COPIES + (lane + n) % TABLE_COPIES;
        UNROLL for (u32 i = 0; i < 4; i++) copy[i * TABLE_COPIES] = entry[i];
    }
}

// Looks up byte `n` of a word in the lane's copy. An address is a rotation, and one function of three words.
INLINE u32 look_up(LOCAL const u32 *table, u32 word, u32 n) {
    u32 copy = LANE % TABLE_COPIES * 4;
    u32 turned = n == 0 ? word << 7 : word >> (8 * n - 7) % 32;
    return *(LOCAL const u32 *)((LOCAL const char *)table + (copy | (turned & 0x7f80)));
}

// SubBytes, ShiftRows and MixColumns for column `c`.
INLINE u32 aes_column(LOCAL const u32 *table, const u32 s[4], u32 c) {
    return look_up(table, s[c], 0) ^ rotate_left(look_up(table, s[(c + 1) % 4], 1), 8) ^
           rotate_left(look_up(table, s[(c + 2) % 4], 2), 16) ^ rotate_left(look_up(table, s[(c + 3) % 4], 3), 24);
}

// The same without MixColumns: an entry has the S-box's value twice, unmultiplied.
INLINE u32 aes_last_column(LOCAL const u32 *table, const u32 s[4], u32 c) {
    return (look_up(table, s[c], 0) >> 8 & 0xff) | (look_up(table, s[(c + 1) % 4], 1) & 0xff00) |
           (look_up(table, s[(c + 2) % 4], 2) & 0xff0000) | (look_up(table, s[(c + 3) % 4], 3) & 0xff00) << 16;
}

// The inverse of SubBytes, ShiftRows and MixColumns.
INLINE u32 aes_inverse_column(LOCAL const u32 *table, const u32 s[4], u32 c) {
    return look_up(table, s[c], 0) ^ rotate_left(look_up(table, s[(c + 3) % 4], 1), 8) ^
           rotate_left(look_up(table, s[(c + 2) % 4], 2), 16) ^ rotate_left(look_up(table, s[(c + 1) % 4], 3), 24);
}

// Encrypts two blocks with the round keys at `keys`.
INLINE void aes_encrypt_pair(u32 a[4], u32 b[4], GLOBAL const u32 *keys, u32 rounds, LOCAL const u32 *table) {
    u32 key[4], c[4], d[4];
    load_four(key, keys);
    UNROLL for (u32 n = 0; n < 4; n++) a[n] ^= key[n];
    UNROLL for (u32 n = 0; n < 4; n++) b[n] ^= key[n];
    LOOP for (u32 round = 1; round < rounds; round++) {
        load_four(key, keys + 4 * round);
        UNROLL for (u32 n = 0; n < 4; n++) c[n] = aes_column(table, a, n) ^ key[n];
        UNROLL for (u32 n = 0; n < 4; n++) d[n] = aes_column(table, b, n) ^ key[n];
        UNROLL for (u32 n = 0; n < 4; n++) a[n] = c[n];
        UNROLL for (u32 n = 0; n < 4; n++) b[n] = d[n];
    }
    load_four(key, keys + 4 * rounds);
    UNROLL for (u32 n = 0; n < 4; n++) c[n] = aes_last_column(table, a, n) ^ key[n];
    UNROLL for (u32 n = 0; n < 4; n++) d[n] = aes_last_column(table, b, n) ^ key[n];
    UNROLL for (u32 n = 0; n < 4; n++) a[n] = c[n];
    UNROLL for (u32 n = 0; n < 4; n++) b[n] = d[n];
}

// Decrypts two blocks with the keys of a row. MixColumns undoes what the last round does too much.
INLINE void aes_decrypt_pair(u32 a[4], u32 b[4], GLOBAL const u32 *row, u32 rounds, LOCAL const u32 *table) {
    u32 key[4], c[4], d[4];
    load_four(key, row + ROW_ROUND_KEYS + 4 * rounds);
    UNROLL for (u32 n = 0; n < 4; n++) a[n] ^= key[n];
    UNROLL for (u32 n = 0; n < 4; n++) b[n] ^= key[n];
    LOOP for (u32 round = rounds; round > 0; round--) {
        load_four(key, row + ROW_INVERSE_KEYS + 4 * (round - 1));
        UNROLL for (u32 n = 0; n < 4; n++) c[n] = aes_inverse_column(table, a, n) ^ key[n];
        UNROLL for (u32 n = 0; n < 4; n++) d[n] = aes_inverse_column(table, b, n) ^ key[n];
        UNROLL for (u32 n = 0; n < 4; n++) a[n] = c[n];
        UNROLL for (u32 n = 0; n < 4; n++) b[n] = d[n];
    }
    UNROLL for (u32 n = 0; n < 4; n++) a[n] = mix_column(a[n]);
    UNROLL for (u32 n = 0; n < 4; n++) b[n] = mix_column(b[n]);
}

// Encrypts a block with round keys that lie in registers, where a chain needs them again and again.
#define AES_KEY_WORDS 60
INLINE void aes_encrypt_one(u32 s[4], const u32 keys[AES_KEY_WORDS], u32 rounds, LOCAL const u32 *table) {
    u32 next[4];
    UNROLL for (u32 n = 0; n < 4; n++) s[n] ^= keys[n];
    UNROLL for (u32 round = 1; round < 14; round++) {
        if (round < rounds) {
            UNROLL for (u32 n = 0; n < 4; n++) next[n] = aes_column(table, s, n) ^ keys[4 * round + n];
            UNROLL for (u32 n = 0; n < 4; n++) s[n] = next[n];
        }
    }
    // Rounds are ten, twelve or fourteen.
    UNROLL for (u32 n = 0; n < 4; n++) {
        u32 key = rounds == 10 ? keys[40 + n] : rounds == 12 ? keys[48 + n] : keys[56 + n];
        next[n] = aes_last_column(table, s, n) ^ key;
    }
    UNROLL for (u32 n = 0; n < 4; n++) s[n] = next[n];
}
#endif
