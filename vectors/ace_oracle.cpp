// The five AES finalists of Crypto++, for ace_oracle.py.
#include <cryptopp/aes.h>
#include <cryptopp/mars.h>
#include <cryptopp/rc6.h>
#include <cryptopp/serpent.h>
#include <cryptopp/twofish.h>

template <class Cipher>
static void one(const unsigned char *key, size_t length, const unsigned char *in, unsigned char *out) {
  Cipher cipher(key, length);
  cipher.ProcessBlock(in, out);
}

template <class Cipher>
static void either(const unsigned char *key, size_t length, bool encrypt, const unsigned char *in, unsigned char *out) {
  if (encrypt)
    one<typename Cipher::Encryption>(key, length, in, out);
  else
    one<typename Cipher::Decryption>(key, length, in, out);
}

extern "C" void ace_oracle(
    int algorithm, const unsigned char *key, size_t length, int encrypt, const unsigned char *in, unsigned char *out) {
  switch (algorithm) {
    case 0: either<CryptoPP::AES>(key, length, encrypt, in, out); break;
    case 1: either<CryptoPP::Serpent>(key, length, encrypt, in, out); break;
    case 2: either<CryptoPP::Twofish>(key, length, encrypt, in, out); break;
    case 3: either<CryptoPP::RC6>(key, length, encrypt, in, out); break;
    case 4: either<CryptoPP::MARS>(key, length, encrypt, in, out); break;
  }
}
