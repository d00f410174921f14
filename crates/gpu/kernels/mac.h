// The kinds of esp_mac and esp_finish.

// Fills a block of HMAC's message, whose first block is the inner pad. `words` words of it come from the packet; with
// ESN the high half of the sequence number follows (RFC 4303 §2.2.1), and then the hash's own padding.
INLINE void hmac_block(u32 w[16], GLOBAL const u32 *text, const struct packet *p, u32 block, u32 big_endian) {
    u32 words = p->head + p->payload;
    u32 end = words + p->esn;
    UNROLL for (u32 i = 0; i < 16; i++) {
        u32 at = 16 * block + i;
        u32 padding = at == end ? 0x00000080 : 0;
        u32 behind = p->esn && at == words ? swap_bytes(p->high) : padding;
        u32 word = at < words ? text[at] : behind;
        w[i] = big_endian ? swap_bytes(word) : word;
    }
    // The length in bits, of two words, ends the first block in which it fits behind the padding's first bit.
    u32 last = block == (end + 2) / 16;
    u32 place = big_endian ? 15 : 14;
    w[place] = last ? 512 + 32 * end : w[place];
}

// HMAC (RFC 2104) of one packet a lane. The last step is the outer hash, so that there is one compression function in
// the code. A lane whose message has ended keeps its state.
INLINE void hmac(const struct launch *l, u32 kind) {
    struct packet p;
    load_packet(&p, l, LANE);
    GLOBAL const u32 *text = covered_text(l, &p);
    GLOBAL const u32 *row = l->rows + p.key;
    u32 big_endian = kind != KIND_HMAC_MD5;
    u32 state_words = kind == KIND_HMAC_MD5 ? 4 : kind == KIND_HMAC_SHA1 ? 5 : 8;
    u32 blocks = (p.head + p.payload + p.esn + 2) / 16 + 1;
    u32 state[8];
    UNROLL for (u32 i = 0; i < 8; i++) state[i] = i < state_words ? row[ROW_INNER + i] : 0;
    LOOP for (u32 t = 0; t <= l->trip; t++) {
        u32 outer = t == l->trip;
        u32 w[16], next[8];
        hmac_block(w, text, &p, t, big_endian);
        UNROLL for (u32 i = 0; i < 16; i++) {
            u32 padding = i == state_words ? (big_endian ? 0x80000000 : 0x00000080)
                          : i == (big_endian ? 15 : 14) ? 512 + 32 * state_words
                                                        : 0;
            u32 digest = i < state_words ? state[i % 8] : padding;
            w[i] = outer ? digest : w[i];
        }
        UNROLL for (u32 i = 0; i < 8; i++) next[i] = outer && i < state_words ? row[ROW_OUTER + i] : state[i];
        if (kind == KIND_HMAC_MD5) md5_compress(next, w);
        if (kind == KIND_HMAC_SHA1) sha1_compress(next, w);
        if (kind == KIND_HMAC_SHA256) sha256_compress(next, w);
        UNROLL for (u32 i = 0; i < 8; i++) state[i] = outer || t < blocks ? next[i] : state[i];
    }
    u32 icv[4];
    UNROLL for (u32 i = 0; i < 4; i++) icv[i] = big_endian ? swap_bytes(state[i]) : state[i];
    finish_icv(l, &p, icv);
}

// Word `at` of the header as AAD: SPI, with ESN the high half of the sequence number, and its low half (RFC 4106 §5,
// RFC 4543 §3.3, RFC 7634 §2.1). Words behind it are zero.
INLINE u32 aad_word(GLOBAL const u32 *text, const struct packet *p, u32 at) {
    u32 second = p->esn ? swap_bytes(p->high) : text[1];
    u32 third = p->esn ? text[1] : 0;
    return at == 0 ? text[0] : at == 1 ? second : at == 2 ? third : 0;
}

// Loads block `block` of what GHASH reads for AES-GCM: AAD, ciphertext, lengths in bits.
INLINE void ghash_block(struct element *e, GLOBAL const u32 *text, const struct packet *p, u32 block) {
    u32 last = 1 + (p->payload + 3) / 4;
    UNROLL for (u32 i = 0; i < 4; i++) {
        // Block 0 is before all words of the payload: its numbers wrap around.
        u32 at = 4 * (block - 1) + i;
        u32 word = at < p->payload ? text[p->head + at] : 0;
        e->word[i] = swap_bytes(block == 0 ? aad_word(text, p, i) : word);
    }
    e->word[1] = block == last ? 32 * (2 + p->esn) : e->word[1];
    e->word[3] = block == last ? 32 * p->payload : e->word[3];
}

// The same for AES-GMAC: all of the packet before the ICV is AAD (RFC 4543 §3.3).
INLINE void gmac_block(struct element *e, GLOBAL const u32 *text, const struct packet *p, u32 block) {
    u32 words = p->head + p->payload + p->esn;
    UNROLL for (u32 i = 0; i < 4; i++) {
        u32 at = 4 * block + i;
        u32 from = at - p->esn;
        u32 body = at >= 2 + p->esn && at < words ? text[from] : 0;
        e->word[i] = swap_bytes(at < 2 + p->esn ? aad_word(text, p, at) : body);
    }
    e->word[1] = block == (words + 3) / 4 ? 32 * words : e->word[1];
}

// The eight lanes of a packet share its blocks out in turn. Zero blocks in front, which change nothing, bring each lane
// to the group's number of steps.
INLINE void ghash(const struct launch *l, u32 kind) {
    u32 sub = LANE % 8;
    struct packet p;
    load_packet(&p, l, LANE / 8);
    GLOBAL const u32 *text = covered_text(l, &p);
    u32 blocks = kind == KIND_GHASH ? 2 + (p.payload + 3) / 4 : 1 + (p.head + p.payload + p.esn + 3) / 4;
    struct element sum = {{0, 0, 0, 0}}, step, last;
    load_power(&step, l->rows, p.key, 8);
    load_power(&last, l->rows, p.key, 8 - sub);
    LOOP for (u32 t = 0; t < l->trip; t++) {
        multiply(&sum, &step);
        u32 block = blocks - 8 * l->trip + 8 * t + sub;
        struct element next;
        if (kind == KIND_GHASH) ghash_block(&next, text, &p, block);
        else gmac_block(&next, text, &p, block);
        UNROLL for (u32 i = 0; i < 4; i++) sum.word[i] ^= block < blocks ? next.word[i] : 0;
    }
    multiply(&sum, &last);
    if (p.active) {
        u32 at = (p.number * 8 + sub) * PARTIAL_WORDS;
        UNROLL for (u32 i = 0; i < 4; i++) l->scratch[at + i] = sum.word[i];
    }
}

// The ICV of AES-GCM and AES-GMAC: the hash and the encrypted first counter block (SP 800-38D §7.1).
INLINE void finish_gcm(const struct launch *l) {
    struct packet p;
    load_packet(&p, l, LANE);
    u32 nonce[3], icv[4] = {0, 0, 0, 0};
    load_nonce(l, &p, nonce);
    LOOP for (u32 sub = 0; sub < 8; sub++) {
        UNROLL for (u32 i = 0; i < 4; i++) icv[i] ^= l->scratch[(p.number * 8 + sub) * PARTIAL_WORDS + i];
    }
#ifdef TABLES
    u32 block[4] = {nonce[0], nonce[1], nonce[2], swap_bytes(1)}, unused[4] = {0, 0, 0, 0};
    aes_encrypt_pair(block, unused, l->rows + p.key + ROW_ROUND_KEYS, l->argument, l->table);
    UNROLL for (u32 i = 0; i < 4; i++) icv[i] = swap_bytes(icv[i]) ^ block[i];
#else
    u32 q[PLANES] = {nonce[0], 0, nonce[1], 0, nonce[2], 0, swap_bytes(1), 0};
    transpose(q);
    aes_encrypt(q, l->rows, p.key, p.key, l->argument, l->argument);
    transpose(q);
    UNROLL for (u32 i = 0; i < 4; i++) icv[i] = swap_bytes(icv[i]) ^ q[2 * i];
#endif
    finish_icv(l, &p, icv);
}

// Poly1305 over AAD, ciphertext and lengths in bytes, the first two padded to whole blocks (RFC 7634 §2, RFC 8439
// §2.8). Lanes with fewer blocks begin later.
INLINE void poly1305(const struct launch *l) {
    struct packet p;
    load_packet(&p, l, LANE);
    GLOBAL const u32 *text = covered_text(l, &p);
    u32 nonce[3], stream[16];
    load_nonce(l, &p, nonce);
    chacha_block(stream, l->rows + p.key + ROW_ROUND_KEYS, 0, nonce);
    struct poly1305 m;
    poly1305_start(&m, stream);
    u32 blocks = 2 + (p.payload + 3) / 4;
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 block = blocks - l->trip + t;
        u32 word[4];
        UNROLL for (u32 i = 0; i < 4; i++) {
            u32 at = 4 * (block - 1) + i;
            u32 body = at < p.payload ? text[p.head + at] : 0;
            word[i] = block == 0 ? aad_word(text, &p, i) : block < blocks ? body : 0;
        }
        word[0] = block == blocks - 1 ? 4 * (2 + p.esn) : word[0];
        word[2] = block == blocks - 1 ? 4 * p.payload : word[2];
        poly1305_block(&m, word, block < blocks);
    }
    u32 icv[4];
    poly1305_finish(&m, icv);
    finish_icv(l, &p, icv);
}
