// Rows: the form of a key that the kernels read.

// Adds the S-box's constant to the planes of a round key (see aes.h).
INLINE void add_constant(u32 q[PLANES]) {
    q[0] = ~q[0];
    q[1] = ~q[1];
    q[5] = ~q[5];
    q[6] = ~q[6];
}

// The S-box on the four bytes of a word, for the key schedule.
INLINE u32 sub_word(u32 word) {
    u32 q[PLANES] = {word, 0, 0, 0, 0, 0, 0, 0};
    transpose(q);
    sub_bytes(q);
    transpose(q);
    return q[0] ^ 0x63636363;
}

// Expands an AES key (FIPS 197 §5.2) of `key_words` words, or zeroes the round keys if there are none. All lanes run
// the steps of the longest key.
INLINE void expand_aes(GLOBAL const u32 *raw, GLOBAL u32 *row, u32 key_words) {
    u32 last[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    u32 phase = 0, round_constant = 1;
    u32 words = key_words == 0 ? 0 : 4 * (key_words + 7);
    LOOP for (u32 i = 0; i < 60; i++) {
        u32 from = key_words == 4 ? last[4] : key_words == 6 ? last[2] : last[0];
        u32 turned = sub_word(phase == 0 ? rotate_left(last[7], 24) : last[7]);
        u32 added = last[7];
        if (phase == 0) added = turned ^ round_constant;
        if (phase == 4 && key_words == 8) added = turned;
        u32 word = from ^ added;
        if (i < key_words) {
            word = raw[RAW_KEY + i];
        } else if (phase == 0) {
            round_constant = round_constant << 1 ^ (round_constant >> 7) * 0x11b;
        }
        phase = phase + 1 >= key_words ? 0 : phase + 1;
        UNROLL for (u32 n = 0; n < 7; n++) last[n] = last[n + 1];
        last[7] = i < words ? word : 0;
        if (i % 4 == 3) {
            u32 q[PLANES] = {last[4], last[4], last[5], last[5], last[6], last[6], last[7], last[7]};
            transpose(q);
            if (i > 3 && i < words) add_constant(q);
            UNROLL for (u32 n = 0; n < PLANES; n++) row[ROW_ROUND_KEYS + i / 4 * PLANES + n] = q[n];
        }
    }
}

#ifdef TABLES
// Makes the form of an AES key that lookups in tables use: words, first for encryption and then for decryption, where
// MixColumns comes before the round key (FIPS 197 §5.3.5). It is smaller than the planes, and overwrites them.
INLINE void convert_aes(GLOBAL u32 *row) {
    LOOP for (u32 round = 0; round < 15; round++) {
        u32 q[PLANES];
        UNROLL for (u32 n = 0; n < PLANES; n++) q[n] = row[ROW_ROUND_KEYS + PLANES * round + n];
        transpose(q);
        u32 without = round == 0 ? 0 : 0x63636363;
        UNROLL for (u32 n = 0; n < 4; n++) row[ROW_ROUND_KEYS + 4 * round + n] = q[2 * n] ^ without;
    }
    LOOP for (u32 round = 0; round < 15; round++) {
        u32 q[PLANES] = {0, 0, 0, 0, 0, 0, 0, 0};
        UNROLL for (u32 n = 0; n < 4; n++) q[2 * n] = row[ROW_ROUND_KEYS + 4 * round + n];
        transpose(q);
        inverse_mix_columns(q);
        transpose(q);
        UNROLL for (u32 n = 0; n < 4; n++) row[ROW_INVERSE_KEYS + 4 * round + n] = q[2 * n];
    }
}
#endif

// Takes the halves of each DES key (permuted choice 1); the parity bits drop out.
INLINE void expand_tdes(GLOBAL const u32 *raw, GLOBAL u32 *row) {
    LOOP for (u32 key = 0; key < 3; key++) {
        u32 c = 0, d = 0;
        LOOP for (u32 i = 0; i < 28; i++) {
            // Numbers of the standard, less 1: from the first byte's most significant bit on.
            u32 of_c = 56 - 8 * (i % 8) + i / 8;
            u32 of_d = i < 24 ? 62 - 8 * (i % 8) - i / 8 : 27 - 8 * (i % 8);
            c = c << 1 | (raw[RAW_KEY + 2 * key + of_c / 32] >> (of_c / 8 % 4 * 8 + 7 - of_c % 8) & 1);
            d = d << 1 | (raw[RAW_KEY + 2 * key + of_d / 32] >> (of_d / 8 % 4 * 8 + 7 - of_d % 8) & 1);
        }
        row[ROW_ROUND_KEYS + 2 * key] = c;
        row[ROW_ROUND_KEYS + 2 * key + 1] = d;
#ifdef TABLES
        expand_des(row + ROW_SUBKEYS + 32 * key, c, d, key == 1);
#endif
    }
}

INLINE void expand_key(GLOBAL const u32 *raw, GLOBAL u32 *rows) {
    u32 key = raw[RAW_ROW] * ROW_WORDS;
    GLOBAL u32 *row = rows + key;
    u32 key_words = raw[RAW_CIPHER] == CIPHER_AES ? raw[RAW_KEY_WORDS] : 0;
    row[ROW_GENERATION] = raw[RAW_GENERATION];
    row[ROW_SALT] = raw[RAW_SALT];
    LOOP for (u32 i = ROW_SALT + 1; i < ROW_ROUND_KEYS; i++) row[i] = 0;
    LOOP for (u32 i = 0; i < 8; i++) {
        row[ROW_INNER + i] = raw[RAW_INNER + i];
        row[ROW_OUTER + i] = raw[RAW_OUTER + i];
    }
    expand_aes(raw, row, key_words);
    if (raw[RAW_CIPHER] == CIPHER_CHACHA) {
        LOOP for (u32 i = 0; i < 8; i++) row[ROW_ROUND_KEYS + i] = raw[RAW_KEY + i];
    }
    if (raw[RAW_CIPHER] == CIPHER_TDES) expand_tdes(raw, row);
    // H is the encrypted block of zeros (SP 800-38D §6.4).
    u32 q[PLANES] = {0, 0, 0, 0, 0, 0, 0, 0};
    aes_encrypt(q, rows, key, key, key_words + 6, 14);
    transpose(q);
    struct element h = {{swap_bytes(q[0]), swap_bytes(q[2]), swap_bytes(q[4]), swap_bytes(q[6])}};
    u32 wanted = raw[RAW_POWERS] == 1;
    struct element divided, power = h;
    divide_by_x(&divided, &h);
    LOOP for (u32 k = 0; k < 8; k++) {
        struct element stored;
        divide_by_x(&stored, &power);
        UNROLL for (u32 n = 0; n < 4; n++) row[ROW_POWERS + 4 * k + n] = wanted ? stored.word[n] : 0;
        multiply(&power, &divided);
    }
#ifdef TABLES
    if (raw[RAW_CIPHER] == CIPHER_AES) convert_aes(row);
#endif
    LOOP for (u32 i = ROW_POWERS + 32; i < ROW_WORDS; i++) row[i] = 0;
}

INLINE void wipe_row(GLOBAL u32 *row) {
    LOOP for (u32 i = 0; i < ROW_WORDS; i++) row[i] = 0;
}
