// The frame of all kinds: which packet a lane works on, the packet's parts, and its ICV and verdict.
// Functions return structs through pointers, because Oclgrind does not know the hints that returned structs bring.
//
// Branches and addresses depend on public values alone: groups, jobs, lengths. Validity and authenticity are masks.

struct launch {
    GLOBAL const u32 *in;
    GLOBAL u32 *out;
    GLOBAL const u32 *rows;
    GLOBAL const u32 *jobs;
    GLOBAL const u32 *order;
    GLOBAL u32 *scratch;
    GLOBAL u32 *verdicts;
#ifdef TABLES
    LOCAL const u32 *table;
#endif
    u32 direction;
    // The work-group's record.
    u32 kind, first, count, trip, argument;
};

// One packet. Offsets and lengths count words.
struct packet {
    u32 active; // a lane without a job runs along and stores nothing
    u32 number;
    u32 in, out;
    u32 key;   // offset of its row
    u32 valid; // mask: the row still holds the job's key
    u32 head;  // ESP header and IV
    u32 payload;
    u32 iv_words, icv_words;
    u32 esn, high;
};

INLINE void load_launch(struct launch *l, GLOBAL const u32 *in, GLOBAL u32 *out, GLOBAL const u32 *rows,
                        GLOBAL const u32 *jobs, GLOBAL const u32 *order, GLOBAL const u32 *groups,
                        GLOBAL u32 *scratch, GLOBAL u32 *verdicts, u32 direction) {
    u32 group = GROUP * GROUP_WORDS;
    l->in = in;
    l->out = out;
    l->rows = rows;
    l->jobs = jobs;
    l->order = order;
    l->scratch = scratch;
    l->verdicts = verdicts;
    l->direction = direction;
    l->kind = groups[group + GROUP_KIND];
    l->first = groups[group + GROUP_FIRST];
    l->count = groups[group + GROUP_COUNT];
    l->trip = groups[group + GROUP_TRIP];
    l->argument = groups[group + GROUP_ARGUMENT];
}

// Loads the job of an entry of the group. A lane behind the last entry takes the last one's job, inactively.
INLINE void load_packet(struct packet *p, const struct launch *l, u32 entry) {
    p->active = entry < l->count;
    p->number = l->order[l->first + (p->active ? entry : l->count - 1)];
    GLOBAL const u32 *job = l->jobs + p->number * JOB_WORDS;
    p->in = job[JOB_IN];
    p->out = job[JOB_OUT];
    p->key = job[JOB_ROW] * ROW_WORDS;
    p->valid = equal_mask(job[JOB_GENERATION], l->rows[p->key + ROW_GENERATION]);
    p->iv_words = job[JOB_SHAPE] & 0xff;
    p->icv_words = job[JOB_SHAPE] >> 8 & 0xff;
    p->esn = job[JOB_SHAPE] >> 16 & 1;
    p->high = job[JOB_HIGH];
    p->head = 2 + p->iv_words;
    p->payload = job[JOB_LEN] - p->head - p->icv_words;
}

// The bytes whose ICV is computed: ciphertext in both directions.
INLINE GLOBAL const u32 *covered_text(const struct launch *l, const struct packet *p) {
    return l->direction == ESP_SEAL ? l->out + p->out : l->in + p->in;
}

// The salt or nonce and the eight bytes of IV, with which a counter block or a ChaCha20 nonce begins. RFC 8750 §4: an
// implicit IV is the sequence number of 64 bits, whose high half is zero without ESN.
INLINE void load_nonce(const struct launch *l, const struct packet *p, u32 nonce[3]) {
    u32 explicit_iv = p->iv_words == 2;
    u32 high = p->esn ? swap_bytes(p->high) : 0;
    nonce[0] = l->rows[p->key + ROW_SALT];
    // Without an IV in the packet the sequence number's low half is at its place in the header.
    nonce[1] = explicit_iv ? l->in[p->in + 2] : high;
    nonce[2] = l->in[p->in + (explicit_iv ? 3 : 1)];
}

// The mask of the payload: open returns plaintext of authentic packets only.
INLINE u32 payload_mask(const struct launch *l, const struct packet *p) {
    return l->direction == ESP_SEAL ? p->valid : p->valid & equal_mask(l->verdicts[p->number], VERDICT_DONE);
}

// Copies ESP header and IV, and for open the ICV.
INLINE void copy_frame(const struct launch *l, const struct packet *p) {
    if (p->active) {
        UNROLL for (u32 i = 0; i < 6; i++) {
            if (i < p->head) l->out[p->out + i] = l->in[p->in + i] & p->valid;
        }
        u32 icv = p->head + p->payload;
        UNROLL for (u32 i = 0; i < 4; i++) {
            if (l->direction == ESP_OPEN && i < p->icv_words) {
                l->out[p->out + icv + i] = l->in[p->in + icv + i] & p->valid;
            }
        }
    }
}

// Seal writes the ICV; open compares it. Both give the verdict.
INLINE void finish_icv(const struct launch *l, const struct packet *p, const u32 icv[4]) {
    u32 at = p->head + p->payload;
    u32 difference = 0;
    if (p->active) {
        UNROLL for (u32 i = 0; i < 4; i++) {
            if (i < p->icv_words) {
                if (l->direction == ESP_SEAL) {
                    l->out[p->out + at + i] = icv[i] & p->valid;
                } else {
                    difference |= l->in[p->in + at + i] ^ icv[i];
                }
            }
        }
        u32 authentic = equal_mask(difference, 0);
        u32 verdict = (authentic & VERDICT_DONE) | (~authentic & VERDICT_NOT_AUTHENTIC);
        l->verdicts[p->number] = (p->valid & verdict) | (~p->valid & VERDICT_WRONG_GENERATION);
    }
}
