// The kinds of esp_cipher.

// Loads the packet that eight lanes share and copies its frame. Returns the mask of the payload.
INLINE u32 share_packet(struct packet *p, const struct launch *l) {
    load_packet(p, l, LANE / 8);
    if (LANE % 8 == 0) copy_frame(l, p);
    return payload_mask(l, p);
}

// Stores a word of the payload, if the packet has it.
INLINE void store(const struct launch *l, const struct packet *p, u32 at, u32 word, u32 mask) {
    if (p->active && at < p->payload) l->out[p->out + p->head + at] = word & mask;
}

// Adds a word of a key stream to the payload.
INLINE void add_stream(const struct launch *l, const struct packet *p, u32 at, u32 stream, u32 mask) {
    if (p->active && at < p->payload) {
        l->out[p->out + p->head + at] = (l->in[p->in + p->head + at] ^ stream) & mask;
    }
}

// Encrypts NULL's payload (RFC 2410): copies it. So does AES-GMAC.
INLINE void copy_payload(const struct launch *l) {
    u32 sub = LANE % 8;
    struct packet p;
    u32 mask = share_packet(&p, l);
    LOOP for (u32 t = 0; t < l->trip; t++) {
        UNROLL for (u32 i = 0; i < 4; i++) {
            add_stream(l, &p, 4 * (8 * t + sub) + i, 0, mask);
        }
    }
}

// Loads four words as one block of a state, or zeros in place of words that do not exist.
INLINE void load_block(u32 q[PLANES], u32 block, GLOBAL const u32 *text, u32 first, u32 end) {
    UNROLL for (u32 i = 0; i < 4; i++) q[2 * i + block] = first + i < end ? text[first + i] : 0;
}

// AES-CBC (RFC 3602). A chain cannot be split, so the two blocks of a lane belong to two packets with their own keys.
INLINE void cbc_seal(const struct launch *l) {
    struct packet a, b;
    load_packet(&a, l, 2 * LANE);
    load_packet(&b, l, 2 * LANE + 1);
    copy_frame(l, &a);
    copy_frame(l, &b);
    u32 chain[PLANES];
    load_block(chain, 0, l->in + a.in, a.head - 4, a.head);
    load_block(chain, 1, l->in + b.in, b.head - 4, b.head);
    transpose(chain);
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 q[PLANES];
        load_block(q, 0, l->in + a.in + a.head, 4 * t, a.payload);
        load_block(q, 1, l->in + b.in + b.head, 4 * t, b.payload);
        transpose(q);
        UNROLL for (u32 n = 0; n < PLANES; n++) q[n] ^= chain[n];
        aes_encrypt(q, l->rows, a.key, b.key, l->argument, l->argument);
        UNROLL for (u32 n = 0; n < PLANES; n++) chain[n] = q[n];
        transpose(q);
        UNROLL for (u32 i = 0; i < 4; i++) {
            store(l, &a, 4 * t + i, q[2 * i], a.valid);
            store(l, &b, 4 * t + i, q[2 * i + 1], b.valid);
        }
    }
}

// The two blocks of a lane are neighbours.
INLINE void cbc_open(const struct launch *l) {
    u32 sub = LANE % 8;
    struct packet p;
    u32 mask = share_packet(&p, l);
    // The IV lies before the first block, so that each block has its predecessor before it.
    GLOBAL const u32 *text = l->in + p.in + p.head - 4;
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 first = 8 * (8 * t + sub);
        u32 q[PLANES], before[PLANES];
        load_block(before, 0, text, first, p.payload);
        load_block(before, 1, text, first + 4, p.payload);
        load_block(q, 0, text + 4, first, p.payload);
        load_block(q, 1, text + 4, first + 4, p.payload);
        transpose(q);
        aes_decrypt(q, l->rows, p.key, l->argument);
        transpose(q);
        UNROLL for (u32 i = 0; i < 8; i++) {
            u32 word = 2 * (i % 4) + i / 4;
            store(l, &p, first + i, q[word] ^ before[word], mask);
        }
    }
}

// AES-CTR (RFC 3686 §4) and the cipher of AES-GCM (RFC 4106).
INLINE void ctr(const struct launch *l) {
    u32 sub = LANE % 8;
    u32 rounds = l->argument & 0xff, counter = l->argument >> 8;
    struct packet p;
    u32 mask = share_packet(&p, l);
    u32 nonce[3];
    load_nonce(l, &p, nonce);
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 block = 2 * (8 * t + sub);
        u32 q[PLANES] = {nonce[0], nonce[0], nonce[1], nonce[1], nonce[2], nonce[2],
                         swap_bytes(counter + block), swap_bytes(counter + block + 1)};
        transpose(q);
        aes_encrypt(q, l->rows, p.key, p.key, rounds, rounds);
        transpose(q);
        UNROLL for (u32 i = 0; i < 8; i++) {
            add_stream(l, &p, 4 * block + i, q[2 * (i % 4) + i / 4], mask);
        }
    }
}

// ChaCha20 (RFC 7634 §2). Block 0 of the key stream is the key of Poly1305.
INLINE void chacha(const struct launch *l) {
    u32 sub = LANE % 8;
    struct packet p;
    u32 mask = share_packet(&p, l);
    u32 nonce[3];
    load_nonce(l, &p, nonce);
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 block = 8 * t + sub;
        u32 stream[16];
        chacha_block(stream, l->rows + p.key + ROW_ROUND_KEYS, block + 1, nonce);
        UNROLL for (u32 i = 0; i < 16; i++) {
            add_stream(l, &p, 16 * block + i, stream[i], mask);
        }
    }
}

// 3DES-CBC (RFC 2451), 32 blocks of a packet at once.
INLINE void tdes_open(const struct launch *l) {
    u32 sub = LANE % 8;
    struct packet p;
    u32 mask = share_packet(&p, l);
    GLOBAL const u32 *text = l->in + p.in + p.head;
    LOOP for (u32 t = 0; t < l->trip; t++) {
        u32 start = 64 * (8 * t + sub);
        u32 first[32], second[32], left[32], right[32];
        UNROLL for (u32 i = 0; i < 32; i++) {
            u32 at = start + 2 * i;
            first[i] = at + 1 < p.payload ? text[at] : 0;
            second[i] = at + 1 < p.payload ? text[at + 1] : 0;
        }
        transpose_32(first);
        transpose_32(second);
        UNROLL for (u32 i = 0; i < 32; i++) {
            left[i] = DES_IN_SECOND(i) ? second[DES_PLANE(i)] : first[DES_PLANE(i)];
            right[i] = DES_IN_SECOND(i) ? second[DES_PLANE(i) + 1] : first[DES_PLANE(i) + 1];
        }
        tdes_decrypt(left, right, l->rows + p.key + ROW_ROUND_KEYS);
        UNROLL for (u32 i = 0; i < 32; i++) {
            if (DES_IN_SECOND(i)) {
                second[DES_PLANE(i)] = left[i];
                second[DES_PLANE(i) + 1] = right[i];
            } else {
                first[DES_PLANE(i)] = left[i];
                first[DES_PLANE(i) + 1] = right[i];
            }
        }
        transpose_32(first);
        transpose_32(second);
        // The IV lies before the first block, so that each block has its predecessor before it.
        UNROLL for (u32 i = 0; i < 32; i++) {
            u32 at = start + 2 * i;
            if (p.active && at + 1 < p.payload) {
                l->out[p.out + p.head + at] = (first[i] ^ l->in[p.in + p.head + at - 2]) & mask;
                l->out[p.out + p.head + at + 1] = (second[i] ^ l->in[p.in + p.head + at - 1]) & mask;
            }
        }
    }
}
