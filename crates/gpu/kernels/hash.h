// The compression functions of MD5 (RFC 1321), SHA-1 and SHA-256 (FIPS 180-4). Each one changes a block of sixteen
// words, which it needs no more, and adds to the state.

CONSTANT u32 MD5_SINES[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

CONSTANT u32 MD5_TURNS[16] = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

CONSTANT u32 SHA256_ROOTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

INLINE void md5_compress(u32 state[8], u32 w[16]) {
    u32 a = state[0], b = state[1], c = state[2], d = state[3];
    UNROLL for (u32 i = 0; i < 64; i++) {
        u32 mixed = i < 16   ? d ^ (b & (c ^ d))
                    : i < 32 ? c ^ (d & (b ^ c))
                    : i < 48 ? b ^ c ^ d
                             : c ^ (b | ~d);
        u32 at = (i < 16 ? i : i < 32 ? 5 * i + 1 : i < 48 ? 3 * i + 5 : 7 * i) % 16;
        u32 sum = a + mixed + w[at] + MD5_SINES[i];
        a = d;
        d = c;
        c = b;
        b += rotate_left(sum, MD5_TURNS[i / 16 * 4 + i % 4]);
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

INLINE void sha1_compress(u32 state[8], u32 w[16]) {
    u32 a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    UNROLL for (u32 i = 0; i < 80; i++) {
        if (i > 15) w[i % 16] = rotate_left(w[(i + 13) % 16] ^ w[(i + 8) % 16] ^ w[(i + 2) % 16] ^ w[i % 16], 1);
        u32 mixed = i < 20               ? (d ^ (b & (c ^ d))) + 0x5a827999
                    : i < 40             ? (b ^ c ^ d) + 0x6ed9eba1
                    : i < 60             ? ((b & c) | (d & (b | c))) + 0x8f1bbcdc
                                         : (b ^ c ^ d) + 0xca62c1d6;
        u32 sum = rotate_left(a, 5) + mixed + e + w[i % 16];
        e = d;
        d = c;
        c = rotate_left(b, 30);
        b = a;
        a = sum;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

INLINE void sha256_compress(u32 state[8], u32 w[16]) {
    u32 v[8];
    UNROLL for (u32 i = 0; i < 8; i++) v[i] = state[i];
    UNROLL for (u32 i = 0; i < 64; i++) {
        if (i > 15) {
            u32 x = w[(i + 1) % 16], y = w[(i + 14) % 16];
            w[i % 16] += w[(i + 9) % 16] + (rotate_left(x, 25) ^ rotate_left(x, 14) ^ x >> 3) +
                         (rotate_left(y, 15) ^ rotate_left(y, 13) ^ y >> 10);
        }
        u32 choice = v[6] ^ (v[4] & (v[5] ^ v[6]));
        u32 majority = (v[0] & v[1]) | (v[2] & (v[0] | v[1]));
        u32 first = v[7] + (rotate_left(v[4], 26) ^ rotate_left(v[4], 21) ^ rotate_left(v[4], 7)) + choice +
                    SHA256_ROOTS[i] + w[i % 16];
        u32 second = (rotate_left(v[0], 30) ^ rotate_left(v[0], 19) ^ rotate_left(v[0], 10)) + majority;
        UNROLL for (u32 n = 7; n > 0; n--) v[n] = v[n - 1];
        v[4] += first;
        v[0] = first + second;
    }
    UNROLL for (u32 i = 0; i < 8; i++) state[i] += v[i];
}
