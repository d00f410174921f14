/* OpenSSL through EVP: contexts with their key set once, the IV anew for each packet. */
#include <stdio.h>
#include <stdlib.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "peer.h"

struct shape {
    const char *cipher;
    /* NULL: an AEAD */
    const char *digest;
    unsigned key, salt, iv, mac_key, icv;
};

struct key {
    EVP_CIPHER_CTX *cipher;
    EVP_MAC_CTX *mac;
    uint8_t salt[4];
};

static void key_free(void *opaque)
{
    struct key *key = opaque;
    if (!key)
        return;
    EVP_CIPHER_CTX_free(key->cipher);
    EVP_MAC_CTX_free(key->mac);
    free(key);
}

static EVP_MAC_CTX *hmac(const char *digest, const uint8_t *material, size_t len)
{
    static EVP_MAC *algorithm;
    if (!algorithm)
        algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = EVP_MAC_CTX_new(algorithm);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)digest, 0),
        OSSL_PARAM_construct_end(),
    };
    if (mac && EVP_MAC_init(mac, material, len, params) == 1)
        return mac;
    EVP_MAC_CTX_free(mac);
    return NULL;
}

PEER_INLINE void *key_new(const struct shape s, EVP_CIPHER **algorithm, const uint8_t *material, int open)
{
    struct key *key = calloc(1, sizeof *key);
    if (!*algorithm)
        *algorithm = EVP_CIPHER_fetch(NULL, s.cipher, NULL);
    if (!key || !*algorithm)
        goto failed;
    key->cipher = EVP_CIPHER_CTX_new();
    if (!key->cipher || EVP_CipherInit_ex2(key->cipher, *algorithm, material, NULL, !open, NULL) != 1)
        goto failed;
    EVP_CIPHER_CTX_set_padding(key->cipher, 0);
    memcpy(key->salt, material + s.key, s.salt);
    if (s.digest) {
        key->mac = hmac(s.digest, material + s.key + s.salt, s.mac_key);
        if (!key->mac)
            goto failed;
    }
    return key;
failed:
    key_free(key);
    return NULL;
}

PEER_INLINE int set_iv(const struct shape s, const struct key *key, const uint8_t *esp)
{
    uint8_t nonce[16] = {[15] = 1};
    memcpy(nonce, key->salt, s.salt);
    memcpy(nonce + s.salt, esp + 8, s.iv);
    return EVP_CipherInit_ex2(key->cipher, NULL, NULL, nonce, -1, NULL);
}

PEER_INLINE int cipher(const struct shape s, const struct key *key, uint8_t *esp, uint32_t len)
{
    uint8_t *body = esp + 8 + s.iv;
    int done = 0;
    return EVP_CipherUpdate(key->cipher, body, &done, body, (int)(len - 8 - s.iv - s.icv));
}

PEER_INLINE int mac(const struct shape s, const struct key *key, const uint8_t *esp, uint32_t len, uint8_t *icv)
{
    size_t done = 0;
    return EVP_MAC_init(key->mac, NULL, 0, NULL) & EVP_MAC_update(key->mac, esp, len - s.icv) &
           EVP_MAC_final(key->mac, icv, &done, 64);
}

PEER_INLINE int aead(const struct shape s, const struct key *key, uint8_t *esp, uint32_t len, int open)
{
    int done = 0, good = set_iv(s, key, esp);
    uint8_t *icv = esp + len - s.icv, none[16];
    if (open)
        good &= EVP_CIPHER_CTX_ctrl(key->cipher, EVP_CTRL_AEAD_SET_TAG, (int)s.icv, icv);
    good &= EVP_CipherUpdate(key->cipher, NULL, &done, esp, 8);
    good &= cipher(s, key, esp, len);
    good &= EVP_CipherFinal_ex(key->cipher, none, &done);
    if (!open)
        good &= EVP_CIPHER_CTX_ctrl(key->cipher, EVP_CTRL_AEAD_GET_TAG, (int)s.icv, icv);
    return good;
}

PEER_INLINE int pair(const struct shape s, const struct key *key, uint8_t *esp, uint32_t len, int open)
{
    uint8_t icv[64], *at = esp + len - s.icv;
    if (open)
        return mac(s, key, esp, len, icv) && peer_same(icv, at, s.icv) && set_iv(s, key, esp) &&
               cipher(s, key, esp, len);
    if (!set_iv(s, key, esp) || !cipher(s, key, esp, len) || !mac(s, key, esp, len, icv))
        return 0;
    memcpy(at, icv, s.icv);
    return 1;
}

PEER_INLINE size_t work(const struct shape s, const struct peer_packet *packets, size_t count, int open)
{
    size_t done = 0;
    for (size_t i = 0; i < count; i++) {
        const struct peer_packet p = packets[i];
        done += (s.digest ? pair : aead)(s, p.key, p.esp, p.len, open) == 1;
    }
    return done;
}

#define SUITE(id, ...)                                                                                  \
    static const struct shape id = {__VA_ARGS__};                                                       \
    static EVP_CIPHER *id##_cipher;                                                                     \
    static void *id##_key(const uint8_t *material, int open)                                            \
    {                                                                                                   \
        return key_new(id, &id##_cipher, material, open);                                               \
    }                                                                                                   \
    static size_t id##_seal(const struct peer_packet *p, size_t n) { return work(id, p, n, 0); }        \
    static size_t id##_open(const struct peer_packet *p, size_t n) { return work(id, p, n, 1); }        \
    static const struct peer_way id##_ways[] = {{"EVP", id##_seal, id##_open}, {0}};

/*                 key salt  iv  MAC key ICV */
SUITE(gcm128, "AES-128-GCM", NULL, 16, 4, 8, 0, 16)
SUITE(gcm256, "AES-256-GCM", NULL, 32, 4, 8, 0, 16)
SUITE(chacha, "ChaCha20-Poly1305", NULL, 32, 4, 8, 0, 16)
SUITE(cbc_sha1, "AES-128-CBC", "SHA1", 16, 0, 16, 20, 12)
SUITE(cbc_sha256, "AES-128-CBC", "SHA256", 16, 0, 16, 32, 16)
SUITE(ctr_sha256, "AES-256-CTR", "SHA256", 32, 4, 8, 32, 16)
SUITE(des_md5, "DES-EDE3-CBC", "MD5", 24, 0, 8, 16, 12)

#define ROW(name, id) {name, id##_key, key_free, id##_ways}

static const struct peer_suite suites[] = {
    ROW("AES_GCM_16_128", gcm128),
    ROW("AES_GCM_16_256", gcm256),
    ROW("CHACHA20_POLY1305", chacha),
    ROW("AES_CBC_128/HMAC_SHA1_96", cbc_sha1),
    ROW("AES_CBC_128/HMAC_SHA2_256_128", cbc_sha256),
    ROW("AES_CTR_256/HMAC_SHA2_256_128", ctr_sha256),
    ROW("3DES/HMAC_MD5_96", des_md5),
    {0},
};

const struct peer *peer(void)
{
    static char name[64];
    static struct peer table = {PEER_ABI, name, suites};
    snprintf(name, sizeof name, "OpenSSL %s", OpenSSL_version(OPENSSL_VERSION_STRING));
    return &table;
}
