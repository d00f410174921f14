#ifdef TABLES
// The kinds of esp_cipher that have tables.

// Fills the work-group's table. All lanes of the group take part, also those without a job.
INLINE void load_table(struct launch *l, LOCAL u32 *table) {
    BEFORE_BARRIER(lane)
    switch (l->kind) {
    case KIND_CBC_SEAL_TABLES:
    case KIND_CTR_TABLES:
    case KIND_FINISH_GCM: load_aes_table(table, lane, 0); break;
    case KIND_CBC_OPEN_TABLES: load_aes_table(table, lane, 1); break;
    case KIND_TDES_SEAL_TABLES:
    case KIND_TDES_OPEN_TABLES: load_des_table(table, lane); break;
    }
    BARRIER;
    l->table = table;
}

// Loads words of the payload, or zeros in place of words that do not exist.
INLINE void load_words(u32 *to, u32 count, GLOBAL const u32 *text, u32 first, u32 end) {
    UNROLL for (u32 i = 0; i < count; i++) to[i] = first + i < end ? text[first + i] : 0;
}

// AES-CBC (RFC 3602).
INLINE void cbc_seal_tables(const struct launch *l) {
    struct packet p;
    load_packet(&p, l, LANE);
    copy_frame(l, &p);
    u32 keys[AES_KEY_WORDS], chain[4];
    UNROLL for (u32 n = 0; n < AES_KEY_WORDS; n += 4) load_four(keys + n, l->rows + p.key + ROW_ROUND_KEYS + n);
    load_words(chain, 4, l->in + p.in, p.head - 4, p.head);
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 block[4];
        load_words(block, 4, l->in + p.in + p.head, 4 * t, p.payload);
        UNROLL for (u32 i = 0; i < 4; i++) chain[i] ^= block[i];
        aes_encrypt_one(chain, keys, l->argument, l->table);
        UNROLL for (u32 i = 0; i < 4; i++) store(l, &p, 4 * t + i, chain[i], p.valid);
    }
}

// The two blocks of a lane are neighbours.
INLINE void cbc_open_tables(const struct launch *l) {
    u32 sub = LANE % 8;
    struct packet p;
    u32 mask = share_packet(&p, l);
    // The IV lies before the first block, so that each block has its predecessor before it.
    GLOBAL const u32 *text = l->in + p.in + p.head - 4;
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 first = 8 * (8 * t + sub);
        u32 before[12], a[4], b[4];
        load_words(before, 4, text, first, p.payload);
        load_words(before + 4, 8, text + 4, first, p.payload);
        UNROLL for (u32 i = 0; i < 4; i++) a[i] = before[4 + i];
        UNROLL for (u32 i = 0; i < 4; i++) b[i] = before[8 + i];
        aes_decrypt_pair(a, b, l->rows + p.key, l->argument, l->table);
        UNROLL for (u32 i = 0; i < 4; i++) store(l, &p, first + i, a[i] ^ before[i], mask);
        UNROLL for (u32 i = 0; i < 4; i++) store(l, &p, first + 4 + i, b[i] ^ before[4 + i], mask);
    }
}

// AES-CTR (RFC 3686 §4) and the cipher of AES-GCM (RFC 4106).
INLINE void ctr_tables(const struct launch *l) {
    u32 sub = LANE % 8;
    u32 rounds = l->argument & 0xff, counter = l->argument >> 8;
    struct packet p;
    u32 mask = share_packet(&p, l);
    u32 nonce[3];
    load_nonce(l, &p, nonce);
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 block = 2 * (8 * t + sub);
        u32 a[4] = {nonce[0], nonce[1], nonce[2], swap_bytes(counter + block)};
        u32 b[4] = {nonce[0], nonce[1], nonce[2], swap_bytes(counter + block + 1)};
        aes_encrypt_pair(a, b, l->rows + p.key + ROW_ROUND_KEYS, rounds, l->table);
        UNROLL for (u32 i = 0; i < 4; i++) add_stream(l, &p, 4 * block + i, a[i], mask);
        UNROLL for (u32 i = 0; i < 4; i++) add_stream(l, &p, 4 * block + 4 + i, b[i], mask);
    }
}

// 3DES-CBC (RFC 2451).
INLINE void tdes_seal_tables(const struct launch *l) {
    struct packet p;
    load_packet(&p, l, LANE);
    copy_frame(l, &p);
    u32 chain[2];
    load_words(chain, 2, l->in + p.in, p.head - 2, p.head);
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 block[2];
        load_words(block, 2, l->in + p.in + p.head, 2 * t, p.payload);
        UNROLL for (u32 i = 0; i < 2; i++) chain[i] ^= block[i];
        tdes_block(&chain[0], &chain[1], l->rows + p.key + ROW_SUBKEYS, l->table, 0);
        UNROLL for (u32 i = 0; i < 2; i++) store(l, &p, 2 * t + i, chain[i], p.valid);
    }
}

// Eight blocks of a packet at once, for a short one that would not fill the planes of tdes_open.
INLINE void tdes_open_tables(const struct launch *l) {
    u32 sub = LANE % 8;
    struct packet p;
    u32 mask = share_packet(&p, l);
    GLOBAL const u32 *text = l->in + p.in + p.head - 2;
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 first = 2 * (8 * t + sub);
        u32 before[2], block[2];
        load_words(before, 2, text, first, p.payload);
        load_words(block, 2, text + 2, first, p.payload);
        tdes_block(&block[0], &block[1], l->rows + p.key + ROW_SUBKEYS, l->table, 1);
        UNROLL for (u32 i = 0; i < 2; i++) store(l, &p, first + i, block[i] ^ before[i], mask);
    }
}
#endif
