// The interface between the kernels and their host. All memory is arrays of 32-bit words on a little-endian device.
//
// Each work-group has ESP_LANES lanes and reads one record of `groups`. A group works on entries of `order`, which are
// job numbers. Seal launches esp_cipher, esp_mac and esp_finish; open launches esp_mac, esp_finish, esp_cipher and
// esp_tdes, which is an entry of its own because it needs twice the registers. The host ensures that rows, jobs,
// entries and packets lie inside their buffers, and that no two packets overlap.

#define ESP_LANES 64

// Directions.
#define ESP_SEAL 0
#define ESP_OPEN 1

// A group: 8 words. The trip count is the greatest of the group's jobs, so that all lanes run alike.
#define GROUP_WORDS 8
#define GROUP_KIND 0
#define GROUP_FIRST 1
#define GROUP_COUNT 2
#define GROUP_TRIP 3
#define GROUP_ARGUMENT 4

// Kinds of esp_cipher. Those without a note have eight lanes a job.
#define KIND_COPY 1     // NULL and AES-GMAC; a step is four words a lane
#define KIND_CBC_SEAL 2 // AES-CBC; a lane has the entries 2l and 2l+1, and a step is a block of each
#define KIND_CBC_OPEN 3 // AES-CBC; a step is two blocks a lane
#define KIND_CTR 4      // AES-CTR (RFC 3686) and AES-GCM (RFC 4106); argument: rounds | first counter << 8
#define KIND_CHACHA 5   // ChaCha20 (RFC 7634); a step is a block of 64 bytes a lane
// With the macro TABLES esp_cipher has these kinds in place of the ones for AES, and for 3DES beside that of esp_tdes.
// Sealing has one lane a job.
#define KIND_CBC_SEAL_TABLES 7  // a step is a block
#define KIND_CBC_OPEN_TABLES 8  // as KIND_CBC_OPEN
#define KIND_CTR_TABLES 9       // as KIND_CTR
#define KIND_TDES_SEAL_TABLES 10 // a step is a block
#define KIND_TDES_OPEN_TABLES 11 // a step is a block a lane
// The kind of esp_tdes, with eight lanes a job.
#define KIND_TDES_OPEN 6 // 3DES-CBC (RFC 2451); a step is 32 blocks of 8 bytes a lane
// Kinds of esp_mac. HMAC and Poly1305 have one lane a job, GHASH and GMAC eight.
#define KIND_HMAC_MD5 16    // RFC 2403; trips of the HMACs: compressions after the one of the inner pad
#define KIND_HMAC_SHA1 17   // RFC 2404
#define KIND_HMAC_SHA256 18 // RFC 4868
#define KIND_GHASH 19       // the hash of AES-GCM; trips: an eighth of the blocks, lengths included, rounded up
#define KIND_GMAC 20        // the hash of AES-GMAC (RFC 4543); trips as for KIND_GHASH
#define KIND_POLY1305 21    // RFC 7634; trips: blocks of 16 bytes, AAD and lengths included
// Kinds of esp_finish.
#define KIND_FINISH_GCM 32 // the ICV of AES-GCM and AES-GMAC; one lane a job, one trip

// A job: 8 words. Offsets and lengths count words.
#define JOB_WORDS 8
#define JOB_IN 0  // the ESP header in `in`
#define JOB_OUT 1 // the ESP header in `out`
#define JOB_LEN 2 // from the ESP header to the end of the ICV
#define JOB_ROW 3
#define JOB_GENERATION 4
#define JOB_HIGH 5  // high half of the sequence number
#define JOB_SHAPE 6 // words of the IV | words of the ICV << 8 | 1 << 16 with ESN

// Verdicts.
#define VERDICT_DONE 1
#define VERDICT_NOT_AUTHENTIC 2
#define VERDICT_WRONG_GENERATION 3 // the output is zero; the host takes the device for broken

// A raw key: 40 words.
#define RAW_WORDS 40
#define RAW_ROW 0
#define RAW_GENERATION 1
#define RAW_CIPHER 2
#define RAW_KEY_WORDS 3 // of an AES key: 4, 6 or 8
#define RAW_KEY 4
#define RAW_SALT 12
#define RAW_INNER 13
#define RAW_OUTER 21
#define RAW_POWERS 29 // 1: the row needs the powers of H

#define CIPHER_NONE 0
#define CIPHER_AES 1
#define CIPHER_CHACHA 2
#define CIPHER_TDES 3 // three keys of two words

// A row: 192 words. Only the kernels know the form of the keys in it. `rows` begins at a multiple of 16 bytes.
#define ROW_WORDS 192
#define ROW_GENERATION 0
#define ROW_SALT 1
#define ROW_ROUND_KEYS 8 // 15 round keys of 8 planes, or a ChaCha20 key, or DES keys
// With TABLES an AES round key has four words: first come those for encryption, then those for decryption. The subkeys
// of 3DES are behind the keys.
#define ROW_INVERSE_KEYS 68
#define ROW_SUBKEYS 16
#define ROW_INNER 128
#define ROW_OUTER 136
#define ROW_POWERS 144 // H^1 … H^8, each divided by x

// Words of `scratch` for each of a job's eight partial hashes.
#define PARTIAL_WORDS 4

// A recorded launch, which plain.c runs. All are words: PLAIN_MAGIC, the direction, the stages, and then each buffer as
// a count and its words: raw, slots (for wipe_keys), in, out, rows, jobs, order, the groups of esp_cipher, of esp_mac,
// of esp_finish and of esp_tdes, scratch, verdicts. The answer is the words of out, rows and verdicts, without counts.
#define PLAIN_MAGIC 0x45535031
#define PLAIN_EXPAND 1
#define PLAIN_WIPE 2
#define PLAIN_CIPHER 4
#define PLAIN_MAC 8
#define PLAIN_FINISH 16
#define PLAIN_TDES 32
