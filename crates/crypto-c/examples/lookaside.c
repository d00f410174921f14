/* Seals and opens a batch of records and a batch of ESP packets.
 *
 *   cargo build --release -p esplanade-crypto-c
 *   cc -I crates/crypto-c/include crates/crypto-c/examples/lookaside.c target/release/libesplanade_crypto_c.a \
 *      -lpthread -ldl -lm -o lookaside && ./lookaside
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "esplanade_crypto.h"

enum { RECORDS = 100, ROOM = 64 };

static void check(int32_t status, const char *step) {
  if (status != ESPLANADE_OK) {
    fprintf(stderr, "%s: %s\n", step, esplanade_status_text(status));
    exit(1);
  }
}

static void expect(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
  }
}

/* Records: a nonce is a number that is never used again with the key. */
static void records(void) {
  static const uint8_t secret[32] = "a key comes from a key exchange";
  static uint8_t texts[RECORDS][ROOM];
  esplanade_aead_key *key = NULL;
  esplanade_record batch[RECORDS];

  check(esplanade_aead_key_new(ESPLANADE_AES_256_GCM, secret, sizeof secret, &key), "key");
  memset(batch, 0, sizeof batch);
  for (int i = 0; i < RECORDS; i++) {
    snprintf((char *)texts[i], ROOM, "record %d", i);
    batch[i].key = key;
    batch[i].nonce[11] = (uint8_t)i;
    batch[i].from = batch[i].to = texts[i]; /* in place */
    batch[i].len = ROOM;
  }
  check(esplanade_records_seal(batch, RECORDS), "seal");
  expect(strcmp((char *)texts[7], "record 7") != 0, "the text is hidden");

  texts[9][0] ^= 1; /* somebody changes a bit */
  expect(esplanade_records_open(batch, RECORDS) == ESPLANADE_AUTH_FAILED, "one is forged");
  for (int i = 0; i < RECORDS; i++) {
    char text[ROOM];
    snprintf(text, ROOM, "record %d", i);
    if (i == 9) {
      expect(batch[i].status == ESPLANADE_AUTH_FAILED && texts[i][0] == 0, "the forged one is zeros");
    } else {
      expect(batch[i].status == ESPLANADE_OK && strcmp((char *)texts[i], text) == 0, "the text is back");
    }
  }
  esplanade_aead_key_free(key);
}

/* ESP packets: SPI, sequence number, IV, payload with trailer, ICV. */
static void packets(void) {
  static const uint8_t material[36] = "sixteen bytes, and twenty for SHA-1";
  enum { HEAD = 8 + 16, BODY = 64, ICV = 12, LEN = HEAD + BODY + ICV };
  uint8_t bytes[3][LEN];
  esplanade_esp_key *key = NULL;
  esplanade_esp_packet batch[3];

  check(esplanade_esp_key_new("AES_CBC_128/HMAC_SHA1_96", 0, material, sizeof material, &key), "key");
  for (int i = 0; i < 3; i++) {
    memset(bytes[i], i + 1, LEN);
    batch[i] = (esplanade_esp_packet){.key = key, .sequence = (uint64_t)i + 1, .bytes = bytes[i], .len = LEN};
  }
  check(esplanade_esp_seal(batch, 3), "seal packets");
  expect(bytes[1][HEAD] != 2 || bytes[1][HEAD + 1] != 2, "the payload is hidden");
  check(esplanade_esp_open(batch, 3), "open packets");
  for (int i = 0; i < 3; i++)
    for (int at = HEAD; at < HEAD + BODY; at++) expect(bytes[i][at] == i + 1, "the payload is back");
  esplanade_esp_key_free(key);
}

/* Nothing that is wrong does harm. */
static void mistakes(void) {
  static const uint8_t zeros[32];
  esplanade_aead_key *key = NULL;
  esplanade_record record;

  memset(&record, 0, sizeof record);
  expect(esplanade_aead_key_new(ESPLANADE_AES_256_GCM, zeros, 32, &key) == ESPLANADE_KEY, "all zeros");
  expect(esplanade_aead_key_new(99, zeros, 32, &key) == ESPLANADE_ARGUMENT, "no such algorithm");
  expect(esplanade_esp_key_new("ROT13", 0, zeros, 32, NULL) == ESPLANADE_ARGUMENT, "nowhere to put it");
  expect(esplanade_records_seal(&record, 1) == ESPLANADE_ARGUMENT, "no key");
  expect(esplanade_records_seal(NULL, 1) == ESPLANADE_ARGUMENT, "no records");
  expect(esplanade_records_seal(NULL, 0) == ESPLANADE_OK, "nothing to do");
  expect(key == NULL, "no key was made");
  esplanade_aead_key_free(NULL);
  esplanade_esp_key_free(NULL);
}

int main(void) {
  records();
  packets();
  mistakes();
  printf("ok with the tier %s\n", esplanade_tier());
  return 0;
}
