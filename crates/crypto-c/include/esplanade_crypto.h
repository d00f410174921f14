// Look-aside use of Esplanade's CPU engine: batches of ESP packets and of AEAD records in the caller's buffers.
//
// Made by cbindgen from src/lib.rs; tests/c.rs says how to make it again.

#ifndef ESPLANADE_CRYPTO_H
#define ESPLANADE_CRYPTO_H

#include <stddef.h>
#include <stdint.h>

// The work is done.
#define ESPLANADE_OK 0

// The input is not authentic; the output is zeros.
#define ESPLANADE_AUTH_FAILED 1

// The length does not fit the transform or the algorithm; the buffer was not touched.
#define ESPLANADE_LENGTH 2

// A null pointer, an unaligned array or a number out of range; nothing was touched.
#define ESPLANADE_ARGUMENT 3

// Buffers of the call overlap, and at least one of them would be written; nothing was touched.
#define ESPLANADE_OVERLAP 4

// The key is refused: it has the wrong length or is weak.
#define ESPLANADE_KEY 5

// No transform has this name.
#define ESPLANADE_TRANSFORM 6

// The engine does not give the known answers on this machine and must not be used.
#define ESPLANADE_SELF_TEST 7

// An error of the library. The contents of the buffers must not be used.
#define ESPLANADE_INTERNAL 8

// AES-GCM with a key of 128 bits. As with all AEADs here, nonces have 12 bytes and tags 16.
#define ESPLANADE_AES_128_GCM 1

#define ESPLANADE_AES_192_GCM 2

#define ESPLANADE_AES_256_GCM 3

#define ESPLANADE_CHACHA20_POLY1305 4

// An AEAD key. Any number of threads may use it at once.
typedef struct esplanade_aead_key esplanade_aead_key;

// One direction of one security association. Any number of threads may use it at once.
typedef struct esplanade_esp_key esplanade_esp_key;

// An ESP packet that is sealed or opened in place.
typedef struct {
  const esplanade_esp_key *key;
  // All 64 bits of the sequence number, with and without ESN.
  uint64_t sequence;
  // ESP header, IV, payload with trailer, ICV. The caller writes header and IV, for sealing too.
  uint8_t *bytes;
  size_t len;
  // The call writes it.
  int32_t status;
} esplanade_esp_packet;

// A text that is sealed or opened with an AEAD. No two records may be sealed with one key and one nonce.
typedef struct {
  const esplanade_aead_key *key;
  // Associated data; may be null if `aad_len` is 0.
  const uint8_t *aad;
  size_t aad_len;
  // The input of `len` bytes; may be null if `len` is 0.
  const uint8_t *from;
  // The output of `len` bytes: the same buffer, or one that does not overlap it.
  uint8_t *to;
  size_t len;
  uint8_t nonce[12];
  // Sealing writes the tag, opening reads it.
  uint8_t tag[16];
  // The call writes it.
  int32_t status;
} esplanade_record;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the meaning of a status in English. The text is never null and must not be freed.
const char *esplanade_status_text(int32_t status);

// Returns the instructions that keys are made for: "portable", "aesni" or "avx512". The text is never null and must
// not be freed.
const char *esplanade_tier(void);

// Makes a key for the ESP transform of this name, such as "AES_GCM_16_256" or "AES_CBC_128/HMAC_SHA1_96", and puts
// it into `*out`. The caller frees the key with esplanade_esp_key_free. `material` is the cipher's key, then its
// salt, then the integrity key. It is copied. `esn` is 0, or any other number for extended sequence numbers.
//
// # Safety
// - `transform` is null or points to a string.
// - `material` is null or points to `material_len` bytes.
// - `out` is null or may be written.
int32_t esplanade_esp_key_new(const char *transform,
                              uint32_t esn,
                              const uint8_t *material,
                              size_t material_len,
                              esplanade_esp_key **out);

// Overwrites and frees a key. `key` may be null.
//
// # Safety
// - `key` is null or came from esplanade_esp_key_new.
// - Nobody uses it any more.
void esplanade_esp_key_free(esplanade_esp_key *key);

// Makes a key for one of the AEADs and puts it into `*out`. The caller frees the key with esplanade_aead_key_free.
// `key` is copied.
//
// # Safety
// - `key` is null or points to `key_len` bytes.
// - `out` is null or may be written.
int32_t esplanade_aead_key_new(uint32_t algorithm,
                               const uint8_t *key,
                               size_t key_len,
                               esplanade_aead_key **out);

// Overwrites and frees a key. `key` may be null.
//
// # Safety
// - `key` is null or came from esplanade_aead_key_new.
// - Nobody uses it any more.
void esplanade_aead_key_free(esplanade_aead_key *key);

// Seals `count` packets in place. Returns the first status that is not ESPLANADE_OK.
//
// # Safety
// - `packets` is null or points to `count` packets.
// - The pointers in the packets are null or valid for their lengths.
// - Nobody else accesses the packets and their bytes during the call.
int32_t esplanade_esp_seal(esplanade_esp_packet *packets, size_t count);

// Opens `count` packets in place. Returns the first status that is not ESPLANADE_OK. The payload of a packet that is
// not authentic is zeroed.
//
// # Safety
// The obligations are those of esplanade_esp_seal.
int32_t esplanade_esp_open(esplanade_esp_packet *packets,
                           size_t count);

// Seals `count` records. Returns the first status that is not ESPLANADE_OK.
//
// # Safety
// - `records` is null or points to `count` records.
// - The pointers in the records are null or valid for their lengths.
// - Nobody else accesses the records and their buffers during the call.
int32_t esplanade_records_seal(esplanade_record *records, size_t count);

// Opens `count` records. Returns the first status that is not ESPLANADE_OK. The output of a record that is not
// authentic is zeroed.
//
// # Safety
// The obligations are those of esplanade_records_seal.
int32_t esplanade_records_open(esplanade_record *records,
                               size_t count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ESPLANADE_CRYPTO_H */
