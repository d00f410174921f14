// ESP (RFC 4303) on a device: the entry points. See abi.h for their interface.
//
// The kind is the same for a whole work-group, so these branches do not diverge.

#ifdef TABLES
// Local memory belongs to a whole entry point.
#define GIVE_TABLE(l)                                                                                                 \
    LOCAL_ARRAY u32 table[TABLE_WORDS];                                                                               \
    load_table(l, table);
#else
#define GIVE_TABLE(l)
#endif

ENTRY expand_keys(GLOBAL const u32 *raw, GLOBAL u32 *rows, u32 count) {
    u32 lane = GROUP * ESP_LANES + LANE;
    if (lane < count) expand_key(raw + lane * RAW_WORDS, rows);
}

ENTRY wipe_keys(GLOBAL const u32 *slots, GLOBAL u32 *rows, u32 count) {
    u32 lane = GROUP * ESP_LANES + LANE;
    if (lane < count) wipe_row(rows + slots[lane] * ROW_WORDS);
}

ENTRY esp_cipher(GLOBAL const u32 *in, GLOBAL u32 *out, GLOBAL const u32 *rows, GLOBAL const u32 *jobs,
                 GLOBAL const u32 *order, GLOBAL const u32 *groups, GLOBAL u32 *scratch, GLOBAL u32 *verdicts,
                 u32 direction) {
    struct launch l;
    load_launch(&l, in, out, rows, jobs, order, groups, scratch, verdicts, direction);
    GIVE_TABLE(&l)
    switch (l.kind) {
    case KIND_COPY: copy_payload(&l); break;
#ifndef TABLES
    case KIND_CBC_SEAL: cbc_seal(&l); break;
    case KIND_CBC_OPEN: cbc_open(&l); break;
    case KIND_CTR: ctr(&l); break;
#endif
    case KIND_CHACHA: chacha(&l); break;
#ifdef TABLES
    case KIND_CBC_SEAL_TABLES: cbc_seal_tables(&l); break;
    case KIND_CBC_OPEN_TABLES: cbc_open_tables(&l); break;
    case KIND_CTR_TABLES: ctr_tables(&l); break;
    case KIND_TDES_SEAL_TABLES: tdes_seal_tables(&l); break;
    case KIND_TDES_OPEN_TABLES: tdes_open_tables(&l); break;
#endif
    }
}

ENTRY esp_tdes(GLOBAL const u32 *in, GLOBAL u32 *out, GLOBAL const u32 *rows, GLOBAL const u32 *jobs,
               GLOBAL const u32 *order, GLOBAL const u32 *groups, GLOBAL u32 *scratch, GLOBAL u32 *verdicts,
               u32 direction) {
    struct launch l;
    load_launch(&l, in, out, rows, jobs, order, groups, scratch, verdicts, direction);
    if (l.kind == KIND_TDES_OPEN) tdes_open(&l);
}

ENTRY esp_mac(GLOBAL const u32 *in, GLOBAL u32 *out, GLOBAL const u32 *rows, GLOBAL const u32 *jobs,
              GLOBAL const u32 *order, GLOBAL const u32 *groups, GLOBAL u32 *scratch, GLOBAL u32 *verdicts,
              u32 direction) {
    struct launch l;
    load_launch(&l, in, out, rows, jobs, order, groups, scratch, verdicts, direction);
    switch (l.kind) {
    case KIND_HMAC_MD5: hmac(&l, KIND_HMAC_MD5); break;
    case KIND_HMAC_SHA1: hmac(&l, KIND_HMAC_SHA1); break;
    case KIND_HMAC_SHA256: hmac(&l, KIND_HMAC_SHA256); break;
    case KIND_GHASH: ghash(&l, KIND_GHASH); break;
    case KIND_GMAC: ghash(&l, KIND_GMAC); break;
    case KIND_POLY1305: poly1305(&l); break;
    }
}

ENTRY esp_finish(GLOBAL const u32 *in, GLOBAL u32 *out, GLOBAL const u32 *rows, GLOBAL const u32 *jobs,
                 GLOBAL const u32 *order, GLOBAL const u32 *groups, GLOBAL u32 *scratch, GLOBAL u32 *verdicts,
                 u32 direction) {
    struct launch l;
    load_launch(&l, in, out, rows, jobs, order, groups, scratch, verdicts, direction);
    GIVE_TABLE(&l)
    if (l.kind == KIND_FINISH_GCM) finish_gcm(&l);
}
