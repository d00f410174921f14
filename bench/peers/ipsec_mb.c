/*
 * intel-ipsec-mb: its job, burst and direct interfaces. PEER_ARCH picks the instructions: 3 AVX-512, 2 AVX2 with all its
 * extensions, 1 AVX2 and AES-NI alone, 0 SSE with AES-NI and SHA-NI.
 */
#include <stdio.h>
#include <stdlib.h>

#include <intel-ipsec-mb.h>

#include "peer.h"

#ifndef PEER_ARCH
#define PEER_ARCH 3
#endif
/* From 1.4 on a job names its suite by a number. */
#define SESSIONS (IMB_VERSION_NUM >= IMB_VERSION(1, 4, 0))

static IMB_MGR *mgr;
static uint8_t ivs[PEER_BATCH][16];
static uint8_t tags[PEER_BATCH][32];

struct shape {
    IMB_CIPHER_MODE cipher;
    IMB_HASH_ALG hash;
    unsigned key, salt, iv, mac_key, icv;
};

PEER_INLINE int is_aead(const struct shape s)
{
    return s.cipher == IMB_CIPHER_GCM || s.cipher == IMB_CIPHER_CHACHA20_POLY1305;
}

/* What a direction needs of a key and no more: with many keys the size of a context counts. */
struct gcm_key {
    struct gcm_key_data data;
    uint8_t salt[4];
};

struct key {
    uint8_t salt[4];
    __attribute__((aligned(16))) uint8_t inner[32];
    uint8_t outer[32];
    /* 3DES: the schedules' addresses. */
    const void *triple[3];
    __attribute__((aligned(16))) uint8_t cipher[];
};

static void *gcm_new(const struct shape s, const uint8_t *material)
{
    struct gcm_key *key = aligned_alloc(64, sizeof *key);
    if (!key)
        return NULL;
    if (s.key == 16)
        IMB_AES128_GCM_PRE(mgr, material, &key->data);
    else
        IMB_AES256_GCM_PRE(mgr, material, &key->data);
    memcpy(key->salt, material + s.key, 4);
    return key;
}

static void hmac(const struct shape s, const uint8_t *material, uint8_t pad, uint8_t *state)
{
    uint8_t block[64] = {0};
    memcpy(block, material, s.mac_key);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= pad;
    switch (s.hash) {
    case IMB_AUTH_HMAC_SHA_1: IMB_SHA1_ONE_BLOCK(mgr, block, state); break;
    case IMB_AUTH_HMAC_SHA_256: IMB_SHA256_ONE_BLOCK(mgr, block, state); break;
    default: IMB_MD5_ONE_BLOCK(mgr, block, state);
    }
}

static void *key_new(const struct shape s, const uint8_t *material, int open)
{
    if (s.cipher == IMB_CIPHER_GCM)
        return gcm_new(s, material);
    size_t schedule = s.cipher == IMB_CIPHER_CHACHA20_POLY1305 ? 32
                      : s.cipher == IMB_CIPHER_DES3            ? 3 * IMB_DES_KEY_SCHED_SIZE
                      : s.key == 16                            ? 11 * 16
                                                               : 15 * 16;
    struct key *key = aligned_alloc(64, (sizeof *key + schedule + 63) & ~63ul);
    if (!key)
        return NULL;
    __attribute__((aligned(16))) uint8_t other[15 * 16];
    switch (s.cipher) {
    case IMB_CIPHER_CHACHA20_POLY1305: memcpy(key->cipher, material, s.key); break;
    case IMB_CIPHER_DES3:
        for (int i = 0; i < 3; i++) {
            key->triple[i] = key->cipher + i * IMB_DES_KEY_SCHED_SIZE;
            IMB_DES_KEYSCHED(mgr, (uint64_t *)key->triple[i], material + 8 * i);
        }
        break;
    case IMB_CIPHER_CBC:
        IMB_AES_KEYEXP_128(mgr, material, open ? other : key->cipher, open ? key->cipher : other);
        break;
    default: IMB_AES_KEYEXP_256(mgr, material, key->cipher, other);
    }
    memcpy(key->salt, material + s.key, s.salt);
    if (!is_aead(s)) {
        hmac(s, material + s.key + s.salt, 0x36, key->inner);
        hmac(s, material + s.key + s.salt, 0x5c, key->outer);
    }
    return key;
}

PEER_INLINE void nonce(const uint8_t *salt, const uint8_t *esp, uint8_t *iv)
{
    memcpy(iv, salt, 4);
    memcpy(iv + 4, esp + 8, 8);
}

/* The fields that all packets of a suite have in common. */
static IMB_JOB form_of(const struct shape s, int open)
{
    static uint8_t nothing[512];
    static const void *none[3] = {nothing, nothing, nothing};
    IMB_JOB form = {0};
    form.cipher_mode = s.cipher;
    form.hash_alg = s.hash;
    form.cipher_direction = open ? IMB_DIR_DECRYPT : IMB_DIR_ENCRYPT;
    form.chain_order = open ? IMB_ORDER_HASH_CIPHER : IMB_ORDER_CIPHER_HASH;
    form.key_len_in_bytes = s.key;
    form.iv_len_in_bytes = is_aead(s) || s.cipher == IMB_CIPHER_CNTR ? 12 : s.iv;
    form.auth_tag_output_len_in_bytes = s.icv;
    form.cipher_start_src_offset_in_bytes = 8 + s.iv;
    if (is_aead(s))
        form.hash_start_src_offset_in_bytes = 8 + s.iv;
    if (s.cipher == IMB_CIPHER_GCM)
        form.u.GCM.aad_len_in_bytes = 8;
    if (s.cipher == IMB_CIPHER_CHACHA20_POLY1305)
        form.u.CHACHA20_POLY1305.aad_len_in_bytes = 8;
#if SESSIONS
    /* It looks at the keys' presence. */
    form.enc_keys = form.dec_keys = s.cipher == IMB_CIPHER_DES3 ? (const void *)none : nothing;
    imb_set_session(mgr, &form);
#else
    (void)none;
#endif
    return form;
}

PEER_INLINE void fill(const struct shape s, const IMB_JOB *form, int open, IMB_JOB *job,
                      const struct peer_packet p, size_t at)
{
    const uint32_t body = p.len - 8 - s.iv - s.icv;
    *job = *form;
    job->src = p.esp;
    job->dst = p.esp + 8 + s.iv;
    job->msg_len_to_cipher_in_bytes = body;
    job->msg_len_to_hash_in_bytes = is_aead(s) ? body : p.len - s.icv;
    job->iv = s.salt ? ivs[at] : p.esp + 8;
    job->auth_tag_output = open ? tags[at] : p.esp + p.len - s.icv;
    if (s.cipher == IMB_CIPHER_GCM) {
        struct gcm_key *key = p.key;
        nonce(key->salt, p.esp, ivs[at]);
        job->enc_keys = job->dec_keys = &key->data;
        job->u.GCM.aad = p.esp;
        return;
    }
    struct key *key = p.key;
    if (s.salt)
        nonce(key->salt, p.esp, ivs[at]);
    job->enc_keys = job->dec_keys = s.cipher == IMB_CIPHER_DES3 ? (void *)key->triple : key->cipher;
    if (s.cipher == IMB_CIPHER_CHACHA20_POLY1305) {
        job->u.CHACHA20_POLY1305.aad = p.esp;
        return;
    }
    job->u.HMAC._hashed_auth_key_xor_ipad = key->inner;
    job->u.HMAC._hashed_auth_key_xor_opad = key->outer;
}

PEER_INLINE size_t authentic(const struct shape s, const struct peer_packet *packets, size_t count)
{
    size_t good = 0;
    for (size_t i = 0; i < count; i++)
        good += peer_same(tags[i], packets[i].esp + packets[i].len - s.icv, s.icv);
    return good;
}

PEER_INLINE size_t by_job(const struct shape s, const IMB_JOB *form, int open, const struct peer_packet *packets,
                          size_t count)
{
    size_t done = 0;
    for (size_t i = 0; i < count; i++) {
        fill(s, form, open, IMB_GET_NEXT_JOB(mgr), packets[i], i);
        IMB_JOB *job = IMB_SUBMIT_JOB_NOCHECK(mgr);
        for (; job; job = IMB_GET_COMPLETED_JOB(mgr))
            done += job->status == IMB_STATUS_COMPLETED;
    }
    for (IMB_JOB *job; (job = IMB_FLUSH_JOB(mgr));)
        done += job->status == IMB_STATUS_COMPLETED;
    return open && done == count ? authentic(s, packets, count) : done;
}

PEER_INLINE size_t completed(IMB_JOB *const *jobs, uint32_t count)
{
    size_t done = 0;
    for (uint32_t i = 0; i < count; i++)
        done += jobs[i]->status == IMB_STATUS_COMPLETED;
    return done;
}

PEER_INLINE size_t by_burst(const struct shape s, const IMB_JOB *form, int open, const struct peer_packet *packets,
                            size_t count)
{
    IMB_JOB *jobs[IMB_MAX_BURST_SIZE];
    size_t done = 0;
    for (size_t begun = 0; begun < count;) {
#if !SESSIONS
        /* Version 1.3 miscounts what is in its queue when that wraps. */
        for (uint32_t n; (n = IMB_FLUSH_BURST(mgr, IMB_MAX_BURST_SIZE, jobs));)
            done += completed(jobs, n);
        mgr->next_job = 0;
#endif
        uint32_t n = count - begun < IMB_MAX_BURST_SIZE ? count - begun : IMB_MAX_BURST_SIZE;
        while (IMB_GET_NEXT_BURST(mgr, n, jobs) < n)
            done += completed(jobs, IMB_FLUSH_BURST(mgr, n, jobs));
        for (uint32_t i = 0; i < n; i++)
            fill(s, form, open, jobs[i], packets[begun + i], begun + i);
        done += completed(jobs, IMB_SUBMIT_BURST_NOCHECK(mgr, n, jobs));
        begun += n;
    }
    for (uint32_t n; (n = IMB_FLUSH_BURST(mgr, IMB_MAX_BURST_SIZE, jobs));)
        done += completed(jobs, n);
    return open && done == count ? authentic(s, packets, count) : done;
}

PEER_INLINE size_t gcm_direct(const struct shape s, int open, int ahead, const struct peer_packet *packets,
                              size_t count)
{
    const aes_gcm_enc_dec_t run = open ? (s.key == 16 ? mgr->gcm128_dec : mgr->gcm256_dec)
                                       : (s.key == 16 ? mgr->gcm128_enc : mgr->gcm256_enc);
    struct gcm_context_data state;
    for (size_t i = 0; i < count; i++) {
        if (ahead && i + 1 < count)
            for (size_t at = 0; at < sizeof(struct gcm_key); at += 64)
                __builtin_prefetch((const char *)packets[i + 1].key + at);
        const struct peer_packet p = packets[i];
        const struct gcm_key *key = p.key;
        uint8_t iv[12], *body = p.esp + 16;
        nonce(key->salt, p.esp, iv);
        run(&key->data, &state, body, body, p.len - 32, iv, p.esp, 8, open ? tags[i] : p.esp + p.len - 16, 16);
    }
    return open ? authentic(s, packets, count) : count;
}

PEER_INLINE size_t chacha_direct(const struct shape s, int open, const struct peer_packet *packets, size_t count)
{
    struct chacha20_poly1305_context_data state;
    for (size_t i = 0; i < count; i++) {
        const struct peer_packet p = packets[i];
        const struct key *key = p.key;
        uint8_t iv[12], *body = p.esp + 16;
        nonce(key->salt, p.esp, iv);
        IMB_CHACHA20_POLY1305_INIT(mgr, key->cipher, &state, iv, p.esp, 8);
        if (open)
            IMB_CHACHA20_POLY1305_DEC_UPDATE(mgr, key->cipher, &state, body, body, p.len - 32);
        else
            IMB_CHACHA20_POLY1305_ENC_UPDATE(mgr, key->cipher, &state, body, body, p.len - 32);
        IMB_CHACHA20_POLY1305_ENC_FINALIZE(mgr, &state, open ? tags[i] : p.esp + p.len - 16, 16);
    }
    return open ? authentic(s, packets, count) : count;
}

#define WAY(id, way, call_seal, call_open)                                                              \
    static size_t id##_##way##_seal(const struct peer_packet *p, size_t n) { return call_seal; }        \
    static size_t id##_##way##_open(const struct peer_packet *p, size_t n) { return call_open; }

#define SUITE(id, ...)                                                                                  \
    static const struct shape id = {__VA_ARGS__};                                                       \
    static IMB_JOB id##_forms[2];                                                                       \
    __attribute__((unused)) static void *id##_key(const uint8_t *material, int open) { return key_new(id, material, open); }    \
    WAY(id, job, by_job(id, id##_forms, 0, p, n), by_job(id, id##_forms + 1, 1, p, n))                  \
    WAY(id, burst, by_burst(id, id##_forms, 0, p, n), by_burst(id, id##_forms + 1, 1, p, n))

#define USE(id, way, name) {name, id##_##way##_seal, id##_##way##_open}

/*                                                        key salt  iv  MAC key ICV */
SUITE(gcm128, IMB_CIPHER_GCM, IMB_AUTH_AES_GMAC, 16, 4, 8, 0, 16)
SUITE(gcm256, IMB_CIPHER_GCM, IMB_AUTH_AES_GMAC, 32, 4, 8, 0, 16)
SUITE(chacha, IMB_CIPHER_CHACHA20_POLY1305, IMB_AUTH_CHACHA20_POLY1305, 32, 4, 8, 0, 16)
SUITE(cbc_sha1, IMB_CIPHER_CBC, IMB_AUTH_HMAC_SHA_1, 16, 0, 16, 20, 12)
SUITE(cbc_sha256, IMB_CIPHER_CBC, IMB_AUTH_HMAC_SHA_256, 16, 0, 16, 32, 16)
SUITE(ctr_sha256, IMB_CIPHER_CNTR, IMB_AUTH_HMAC_SHA_256, 32, 4, 8, 32, 16)
SUITE(des_md5, IMB_CIPHER_DES3, IMB_AUTH_MD5, 24, 0, 8, 16, 12)

WAY(gcm128, direct, gcm_direct(gcm128, 0, 0, p, n), gcm_direct(gcm128, 1, 0, p, n))
WAY(gcm128, ahead, gcm_direct(gcm128, 0, 1, p, n), gcm_direct(gcm128, 1, 1, p, n))
WAY(gcm256, direct, gcm_direct(gcm256, 0, 0, p, n), gcm_direct(gcm256, 1, 0, p, n))
WAY(gcm256, ahead, gcm_direct(gcm256, 0, 1, p, n), gcm_direct(gcm256, 1, 1, p, n))
WAY(chacha, direct, chacha_direct(chacha, 0, p, n), chacha_direct(chacha, 1, p, n))

#define JOBS(id) USE(id, job, "job"), USE(id, burst, "burst")

static const struct peer_way gcm128_ways[] = {
    JOBS(gcm128), USE(gcm128, direct, "direct"), USE(gcm128, ahead, "direct, prefetching keys"), {0}};
static const struct peer_way gcm256_ways[] = {
    JOBS(gcm256), USE(gcm256, direct, "direct"), USE(gcm256, ahead, "direct, prefetching keys"), {0}};
static const struct peer_way chacha_ways[] = {JOBS(chacha), USE(chacha, direct, "direct"), {0}};
static const struct peer_way cbc_sha1_ways[] = {JOBS(cbc_sha1), {0}};
static const struct peer_way cbc_sha256_ways[] = {JOBS(cbc_sha256), {0}};
static const struct peer_way ctr_sha256_ways[] = {JOBS(ctr_sha256), {0}};
__attribute__((unused)) static const struct peer_way des_md5_ways[] = {JOBS(des_md5), {0}};

#define ROW(name, id) {name, id##_key, free, id##_ways}

static const struct peer_suite suites[] = {
    ROW("AES_GCM_16_128", gcm128),
    ROW("AES_GCM_16_256", gcm256),
    ROW("CHACHA20_POLY1305", chacha),
    ROW("AES_CBC_128/HMAC_SHA1_96", cbc_sha1),
    ROW("AES_CBC_128/HMAC_SHA2_256_128", cbc_sha256),
    ROW("AES_CTR_256/HMAC_SHA2_256_128", ctr_sha256),
#if PEER_ARCH == 3
    /* The others look every S-box entry up, one packet at a time: a batch of long packets takes seconds. */
    ROW("3DES/HMAC_MD5_96", des_md5),
#endif
    {0},
};

static int start(void)
{
    mgr = alloc_mb_mgr(PEER_ARCH == 1 ? IMB_FLAG_SHANI_OFF | IMB_FLAG_GFNI_OFF : 0);
    if (!mgr || strncmp(imb_get_version_str(), IMB_VERSION_STR, strlen(IMB_VERSION_STR)))
        return 0;
    const uint64_t needed = PEER_ARCH == 3 ? IMB_CPUFLAGS_AVX512 : PEER_ARCH ? IMB_CPUFLAGS_AVX2 : IMB_CPUFLAGS_SSE;
    if ((mgr->features & needed) != needed)
        return 0;
    if (PEER_ARCH == 3)
        init_mb_mgr_avx512(mgr);
    else if (PEER_ARCH)
        init_mb_mgr_avx2(mgr);
    else
        init_mb_mgr_sse(mgr);
#define FORMS(id) id##_forms[0] = form_of(id, 0), id##_forms[1] = form_of(id, 1)
    FORMS(gcm128);
    FORMS(gcm256);
    FORMS(chacha);
    FORMS(cbc_sha1);
    FORMS(cbc_sha256);
    FORMS(ctr_sha256);
    FORMS(des_md5);
    return 1;
}

const struct peer *peer(void)
{
    static char name[64];
    static struct peer table = {PEER_ABI, name, suites};
    if (!mgr && !start())
        return NULL;
    static const char *const arch[] = {"SSE", "AVX2 without VAES", "AVX2", "AVX-512"};
    snprintf(name, sizeof name, "intel-ipsec-mb %s %s", imb_get_version_str(), arch[PEER_ARCH]);
    return &table;
}
